#!/bin/sh
# Proves that 1, 2 and 4 ranks train the same model on the same global batch: equal losses for 20 steps and on the held-out text (fp32
# rounding allowed), equal weights on all ranks (hkt-train stops otherwise), with overlap and without; and that no memory is taken after
# step 2 and hardly a page faulted in; that ZeRO 2 and 3 keep their share of the gradients, or say why they do not.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
text=${srcdir:-.}/trainer
small='--num-layers 2 --hidden-size 48 --num-attention-heads 3 --seq-length 64 --micro-batch-size 2 --global-batch-size 8 --bucket-bytes 20K
    --train-iters 20 --lr-warmup-iters 5 --log-interval 1 --eval-interval 10 --eval-iters 2 --sample-tokens 0 --seed 7'

# run NAME RANKS [flags]: leaves "step loss" and "eval loss" lines in NAME.
run() {
    name=$1 ranks=$2
    shift 2
    # shellcheck disable=SC2086
    ./hkt-run -n "$ranks" ./hkt-train --data-path "$text" $small "$@" >"$scratch/$name.log"
    sed -n 's/^step *\([0-9]*\).*  loss \([0-9.]*\) .*/step \1 \2/p; s/^eval *\([0-9]*\).* loss \([0-9.]*\) .*/eval \1 \2/p' \
        "$scratch/$name.log" >"$scratch/$name"
    [ "$(wc -l <"$scratch/$name")" = 22 ] || { cat "$scratch/$name.log"; echo "FAIL: $name did not report 20 steps and 2 evaluations"; exit 1; }
    case ${CFLAGS:-} in
    *-fsanitize*) ;; # sanitizers fault pages themselves
    *) grep -Eq 'taken after step 2 +0 times; page faults [0-9]{1,2}$' "$scratch/$name.log" || { cat "$scratch/$name.log"; echo "FAIL: $name: memory was taken in the steps"; exit 1; } ;;
    esac
}

# same A B TOLERANCE: relative difference of every line.
same() {
    paste -d ' ' "$scratch/$1" "$scratch/$2" | awk -v names="$1 and $2" -v tolerance="$3" '
        { d = ($3 > $6 ? $3 - $6 : $6 - $3) / $3; if (d > worst) worst = d
          if (d > tolerance || $1 != $4 || $2 != $5) { print "FAIL: " names ": " $0; bad = 1 } }
        END { printf "%s: losses differ by at most %.1e\n", names, worst; exit bad }'
}

run one 1
run two 2
run four 4
run serial 2 --overlap-grad-reduce off --bucket-bytes 1M
same one two 1e-5
same one four 1e-5
same two serial 0 # the same sums in another order of calls: the same bits
awk '$1 == "step" { loss[$2] = $3 } END { if (!(loss[20] < 0.8 * loss[1])) { print "FAIL: the loss does not fall"; exit 1 } }' "$scratch/one"

# ZeRO 2 and 3 keep 1/n of the gradients and buckets for those of a layer and the embedding (8 layers of 0.11 MB, 0.05 MB); where they keep all
# of them the run says why.
gradients() { sed -n 's/.*gradients \([0-9.]*\),.*/\1/p' "$scratch/$1.log"; }
shares() {
    awk -v whole="$(gradients whole)" -v part="$(gradients "$1")" -v name="$1" 'BEGIN {
        if (!(part < whole / 4 + 0.3 && whole > 0.9)) { print "FAIL: " name " keeps " part " MB of " whole; exit 1 } }'
}
run whole 4 --num-layers 8 --zero-stage 1
run shared 4 --num-layers 8 --zero-stage 2
same whole shared 0
shares shared
run shared3 4 --num-layers 8 --zero-stage 3
same whole shared3 0
shares shared3
run kept 4 --num-layers 8 --zero-stage 2 --micro-batch-size 1
same whole kept 1e-5
[ "$(gradients kept)" = "$(gradients whole)" ] || { echo "FAIL: gradients of two micro-batches are not kept"; exit 1; }
grep -q '^gradients kept whole.*--grad-reduce each keeps 1/4' "$scratch/kept.log" || { echo "FAIL: that all gradients are kept is not said"; exit 1; }
run each 4 --num-layers 8 --zero-stage 2 --micro-batch-size 1 --grad-reduce each
same whole each 1e-5
shares each
! grep -q '^gradients kept' "$scratch/each.log" || { echo "FAIL: it is said that gradients are kept, and they are not"; exit 1; }
run stages 4 --zero-stage 2 --pipeline-model-parallel-size 2
same two stages 1e-5
grep -q '^gradients kept whole.*pipeline' "$scratch/stages.log" || { echo "FAIL: that a pipeline keeps all gradients is not said"; exit 1; }

# What cannot be is refused before training, with the reason.
if ./hkt-run -n 3 ./hkt-train --data-path "$text" >"$scratch/said" 2>&1 || ! grep -q 'no multiple of micro-batch 1 times 3 data-parallel ranks' "$scratch/said"; then
    cat "$scratch/said"
    echo "FAIL: a batch that 3 ranks cannot share"
    exit 1
fi
if ./hkt-train --hidden-size 50 --num-attention-heads 4 2>"$scratch/said" || ! grep -q 'not a multiple' "$scratch/said"; then
    cat "$scratch/said"
    echo "FAIL: heads that do not divide the width"
    exit 1
fi

# The manual page has every flag and no other.
./hkt-train --help | grep -o -e '^ *-.*' | grep -o -e '--[a-z0-9-]*' | sort -u >"$scratch/help"
sed 's/\\-/-/g' "${srcdir:-.}/docs/man/hkt-train.1" | grep '^\.B -' | grep -o -e '--[a-z0-9-]*' | sort -u >"$scratch/page"
diff "$scratch/help" "$scratch/page" || { echo "FAIL: docs/man/hkt-train.1 differs from --help"; exit 1; }
