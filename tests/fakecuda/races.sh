#!/bin/sh
# Proves that the kernels' flags order what they must: ThreadSanitizer watches every thread of every block of all ranks, each as a fiber.
# Processors of x86 order more than GPUs do, so nothing else here sees a relaxed flag. Skipped where the compiler has no such sanitizer.
set -eu
srcdir=${srcdir:-.}
CC=${CC:-cc}
CXX=${CXX:-c++}
core=.libs/libcore.a
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ -f $core ] || exit 77
# shellcheck source=tests/fakecuda/build.sh
. "$srcdir/tests/fakecuda/build.sh"
echo 'int main(void) { return 0; }' >"$scratch/probe.c"
# shellcheck disable=SC2086 # CC may hold several words
$CC -fsanitize=thread -o "$scratch/probe" "$scratch/probe.c" 2>/dev/null && "$scratch/probe" || { echo "no ThreadSanitizer here"; exit 77; }
fakecuda_build "$scratch" -fsanitize=thread

for scene in "fused 2" "fused 4" "low 2" "low 4" "pipelined 3"; do
    for seed in 0 5; do
        # shellcheck disable=SC2086 # a scene is two words
        FAKECUDA_SEED=$seed FAKECUDA_SLOTS=2 TSAN_OPTIONS="halt_on_error=0 exitcode=66" LD_LIBRARY_PATH=$scratch \
            "$scratch/ranks" $scene >"$scratch/said" 2>&1 || { head -60 "$scratch/said"; echo "$scene, seed $seed: failed"; exit 1; }
    done
    echo "$scene: no race"
done
