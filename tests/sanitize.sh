#!/bin/sh
# sanitize.sh address|thread [FOLDER] -- builds everything in a folder of its own (build-address, build-thread) with AddressSanitizer
# and UndefinedBehaviorSanitizer, or with ThreadSanitizer, and runs every test there. A finding of a sanitizer fails its test.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
case ${1:-} in
address) flags="-fsanitize=address,undefined -fno-sanitize-recover=all" ;;
thread) flags="-fsanitize=thread" ;;
*)
    echo "usage: $0 address|thread [FOLDER]" >&2
    exit 2
    ;;
esac
folder=${2:-build-$1}
mkdir -p "$folder"
cd "$folder"
[ -e config.status ] || "$source/configure" CFLAGS="-O1 -g -fno-omit-frame-pointer $flags" CXXFLAGS="-O1 -g $flags"
make -j"$(nproc)"
make -j"$(nproc)" check TESTS=
ASAN_OPTIONS=detect_stack_use_after_return=1:abort_on_error=0 \
    UBSAN_OPTIONS=print_stacktrace=1 \
    TSAN_OPTIONS=halt_on_error=0:exitcode=66:second_deadlock_stack=1:die_after_fork=0 \
    make check
