#!/bin/bash
# Proves that slips in the kernels are caught: each row below changes one line of one file; the tests must fail by a wrong result, by a hang,
# or by a race that ThreadSanitizer sees. Minutes; `make check-mutations-cuda`.
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
mkdir -p "$scratch/plain" "$scratch/watched" "$scratch/src/device/kernels"
fakecuda_driver "$scratch/plain" && fakecuda_test "$scratch/plain"
fakecuda_driver "$scratch/watched" -fsanitize=thread && fakecuda_test "$scratch/watched" -fsanitize=thread

# caught FOLDER SEED JITTER SCENE: says how, or fails when nothing was noticed.
caught() {
    local code=124 limit
    for limit in 15 150; do # a second time before it is called a hang: the machine may have other things to do
        [ $code = 124 ] || break
        code=0
        # shellcheck disable=SC2086 # a scene is two words
        FAKECUDA_SEED=$2 FAKECUDA_JITTER=$3 LD_LIBRARY_PATH=$1 TSAN_OPTIONS="halt_on_error=1 exitcode=66" \
            timeout $limit "$1/ranks" $4 >"$scratch/said" 2>&1 || code=$?
    done
    case $code in
    0) return 1 ;;
    124) echo "hangs" ;;
    66) echo "races" ;;
    *) echo "gives something else" ;;
    esac
}

# judge NAME SCENE: builds the kernels in scratch/src and runs them.
judge() {
    local how seed
    fakecuda_kernels "$scratch/plain" "$scratch/src" || { echo "$1: does not compile"; exit 1; }
    for seed in "0 0" "3 2000" "5 0" "9 2000"; do
        # shellcheck disable=SC2086
        how=$(caught "$scratch/plain" $seed "$2") && { echo "$how"; return 0; }
    done
    fakecuda_kernels "$scratch/watched" "$scratch/src" -fsanitize=thread
    for seed in "0 0" "3 0"; do
        # shellcheck disable=SC2086
        how=$(FAKECUDA_SLOTS=2 caught "$scratch/watched" $seed "$2") && { echo "$how"; return 0; }
    done
    return 1
}

cp "$srcdir"/src/device/kernels/*.h "$srcdir"/src/device/kernels/*.cu "$scratch/src/device/kernels"
for scene in "fused 3" "low 4" "pipelined 3"; do
    ! how=$(judge unchanged "$scene") || { cat "$scratch/said"; echo "unchanged kernels: $scene: $how"; exit 1; }
done

count=0
while IFS='|' read -r file scene from to what; do
    [ -n "$file" ] || continue
    cp "$srcdir/src/device/kernels/$file" "$scratch/before"
    # Plain text for plain text, on one line only: a row that fits no line or several is out of date.
    FROM=$from TO=$to awk 'BEGIN { from = ENVIRON["FROM"]; to = ENVIRON["TO"] }
        (i = index($0, from)) { $0 = substr($0, 1, i - 1) to substr($0, i + length(from)); n++ } { print } END { exit n != 1 }' \
        "$scratch/before" >"$scratch/src/device/kernels/$file" || { echo "$file: '$from' does not stand on exactly one line"; exit 1; }
    how=$(judge "$what" "$scene") || { echo "$file: not caught: $what"; exit 1; }
    printf '%-12s %s: %s\n' "$file" "$what" "$how"
    cp "$scratch/before" "$scratch/src/device/kernels/$file"
    count=$((count + 1))
done <<'ROWS'
wait.h|fused 3|block_barrier(); /* so that what|(void)0; /* so that what|signals before all threads have written
wait.h|fused 3|block_barrier(); /* nobody reads|(void)0; /* nobody reads|reads before the peers are there
wait.h|fused 3|store_release(flag_of(a, peer, after, a.rank), epoch)|*at<volatile uint32_t>(flag_of(a, peer, after, a.rank)) = epoch|signals without order
wait.h|fused 3|load_acquire(mine)|load_relaxed(mine)|waits without order
wait.h|fused 3|load<uint32_t>(epoch_of(a, peer)) + 1);|load<uint32_t>(epoch_of(a, peer)));|leaves the epochs where they are
wait.h|fused 3|!= grid_blocks() - 1)|!= 0)|lets the first block move the epochs on
wait.h|fused 3|store<uint32_t>(done, 0);|(void)0;|counts blocks on from launch to launch
wait.h|fused 3|+ this_block()) * HKT_SEGMENT_FAN|+ 0) * HKT_SEGMENT_FAN|gives all blocks the same flag
wait.h|fused 3|((uint64_t)after * HKT_KERNEL_BLOCKS|((uint64_t)0 * HKT_KERNEL_BLOCKS|takes the flag of the other barrier
move.h|fused 3|if (a.wait & HKT_KERNEL_BEFORE)|if (false)|does not wait before
move.h|fused 3|if (a.wait & HKT_KERNEL_AFTER)|if (false)|does not wait after
move.h|fused 3|fold_elements<E, Op, scales>(j, tail, n);|(void)tail;|drops the elements behind the last pack
move.h|fused 3|fold_elements<E, Op, scales>(j, 0, head);|(void)head;|drops the elements before the first pack
fold.h|fused 3|width < most; width *= 2)|width < most / 2; width *= 2)|leaves the last level of the tree out
low.h|pipelined 3|((epoch & 1) * HKT_SEGMENT_FAN|(0 * HKT_SEGMENT_FAN|has one bank
low.h|low 4|v.word[3] != epoch|v.word[1] != epoch|looks at one flag of two
low.h|low 4|store<uint32_t>(low_epoch_of(a), epoch);|(void)0;|leaves the epoch where it is
low.h|pipelined 3|return epoch == UINT32_MAX ? 2 : epoch + 1;|return epoch == UINT32_MAX ? 2 : epoch + 2;|uses one bank only
low.h|low 4|if ((uint32_t)r == a.rank) {|if (r == 0) {|takes rank 0 for itself
low.h|low 4|count * sizeof(T) >= 8 && address % 8 == 0) {|true) {|stores whole words always
ROWS
echo "$count caught"
