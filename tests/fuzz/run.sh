#!/bin/sh
# run.sh [FOLDER [TARGET...]] -- fuzzes with clang's libFuzzer and AddressSanitizer and UndefinedBehaviorSanitizer, each target (all of tests/fuzz/main.c, or those
# named) for FUZZ_SECONDS (60), in a folder of its own. What is found stands in FOLDER/found; new inputs that reach new code in FOLDER/corpus.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-build-fuzz}
[ $# -eq 0 ] || shift
flags="-g -O1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all \
    -fsanitize-ignorelist=$source/tests/fuzz/ignore.txt -fsanitize-coverage-ignorelist=$source/tests/fuzz/ignore.txt"
mkdir -p "$folder/found"
cd "$folder"
[ -e config.status ] || "$source/configure" CC=clang CFLAGS="$flags" CXXFLAGS= --disable-shared
make -j"$(nproc)" libcore.la
[ $# -gt 0 ] || set -- $(sed -n 's/.*fuzz_\([a-z]*\)(const uint8_t.*/\1/p' "$source/tests/fuzz/fuzz.h")
failed=
for target in "$@"; do
    ./libtool --quiet --tag=CC --mode=link clang $flags -fsanitize=fuzzer -D_GNU_SOURCE -DHAVE_CONFIG_H -DFUZZ_TARGET="fuzz_$target" -I. -I"$source" \
        -I"$source/include" -I"$source/src" -I"$source/tests/fuzz" -o "fuzz-$target" "$source"/tests/fuzz/*.c libcore.la -lm
    mkdir -p "corpus/$target"
    echo "== $target"
    ./"fuzz-$target" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=20 -rss_limit_mb=2048 -max_len=4096 -print_final_stats=1 \
        -artifact_prefix="found/$target-" "corpus/$target" "$source/tests/fuzz/corpus/$target" >"$target.log" 2>&1 || failed="$failed $target"
    grep -E 'number_of_executed_units|new_units_added|SUMMARY|ERROR: ' "$target.log" || true
done
[ -z "$failed" ] || { echo "something was found in:$failed; see $folder/found and $folder/*.log"; exit 1; }
