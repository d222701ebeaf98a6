#!/bin/sh
# Proves that every layout trains the same model (kit K2, cases C01, C10, C12): each line of the table trains the tiny model of the kit on 1 to
# 8 processes, and its losses and norms are compared with those of one process. `same`: the same bits, for layouts that differ only in the
# pipeline, in ZeRO, in recomputation, in bucket sizes; or, with --bitwise-layouts, in anything. `near`: step 1 within 1e-6 and all others
# within 1e-4 of it. Without TEST_LONG: the lines marked short, 20 steps; with it: all, 50 steps.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
steps=20
[ -z "${TEST_LONG:-}" ] || steps=50
tiny="--data-path ${srcdir:-.}/trainer --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --micro-batch-size 1
    --global-batch-size 8 --init-method-std 0.1 --train-iters $steps --lr-warmup-iters 5 --log-interval 100 --eval-interval $steps --eval-iters 1
    --sample-tokens 0 --threads 1 --seed 7"

# run NAME RANKS [flags]
run() {
    name=$1 ranks=$2
    shift 2
    # shellcheck disable=SC2086
    if ! ./hkt-run -n "$ranks" ./hkt-train $tiny --loss-file "$scratch/$name" "$@" >"$scratch/said" 2>&1; then
        tail -n 20 "$scratch/said"
        echo "FAIL: $ranks ranks, $*"
        exit 1
    fi
    [ "$(grep -c '^step\|^eval' "$scratch/$name")" = $((steps + 1)) ] || { echo "FAIL: $name: no $steps steps and an evaluation"; exit 1; }
}

# compare BASE NAME same|near: bit for bit, or within the tolerances.
compare() {
    paste -d ' ' "$scratch/$1" "$scratch/$2" | awk -v how="$3" '
        { d = ($3 - $7) / $3; if (d < 0) d = -d
          if (d > worst) worst = d
          if ($1 != $5 || $2 != $6 || (how == "same" && ($3 != $7 || $4 != $8)) || d > ($2 == 1 ? 1e-6 : 1e-4)) { print "FAIL: " $0; bad = 1; exit } }
        END { printf "%s, losses differ by at most %.1e\n", bad ? "FAIL" : "ok", worst; exit bad }'
}

run one 1
run one_bitwise 1 --bitwise-layouts
compare one one_bitwise near
run dropped 1 --hidden-dropout 0.2 --attention-dropout 0.1 --position-embedding-type rope --embedding-layernorm
run llama 1 --swiglu --normalization RMSNorm --disable-bias-linear --group-query-attention --num-query-groups 2 --position-embedding-type rope
run data2 2
run data4 4
run tensor2 2 --tensor-model-parallel-size 2
awk '$1 == "step" { loss[$2] = $3 } END { if (!(loss['$steps'] < 0.8 * loss[1])) { print "FAIL: the loss does not fall"; exit 1 } }' "$scratch/one"

# When, compared with which run, how; ranks; flags.
tp='--tensor-model-parallel-size' pp='--pipeline-model-parallel-size' chunk='--num-layers-per-virtual-pipeline-stage'
cp='--context-parallel-size'
dropout='--hidden-dropout 0.2 --attention-dropout 0.1 --position-embedding-type rope --embedding-layernorm'
llama='--swiglu --normalization RMSNorm --disable-bias-linear --group-query-attention --num-query-groups 2 --position-embedding-type rope'
table() {
    cat <<END
short one near 2 --zero-stage 0
short one near 4 --zero-stage 0
short one near 2 $tp 2 --sequence-parallel
long one near 4 $tp 4
long one near 4 $tp 4 --sequence-parallel --recompute-granularity selective
long one same 1 --recompute-granularity selective
short one same 1 --recompute-granularity full
short one same 1 --optimizer-tier host
long one same 2 $pp 2
short one same 4 $pp 4
long one same 2 $pp 2 $chunk 1
short one same 2 $pp 2 $chunk 1 --recompute-granularity full
short one same 4 $pp 4 --pipeline-schedule zero-bubble
long one same 2 $pp 2 --pipeline-schedule zero-bubble --recompute-granularity selective
long one same 2 $pp 2 --pipeline-schedule gpipe
long one same 2 $pp 2 --pipeline-layout 3,1
long data2 same 2 --zero-stage 1
short data2 same 2 --zero-stage 2 --bucket-bytes 10K
short data2 same 2 --zero-stage 3
long data2 same 2 --zero-stage 3 --recompute-granularity full
long data2 same 2 --bucket-bytes 3K --overlap-grad-reduce off
short data2 same 4 $pp 2 --zero-stage 1
long data2 same 4 $pp 2 --zero-stage 2
long data2 same 4 $pp 2 $chunk 1 --zero-stage 3
long data4 same 4 --zero-stage 3
long data4 same 8 $pp 2 --zero-stage 1 --layout-order tp-pp-dp
long one near 2 --zero-stage 3 --grad-reduce each
long tensor2 same 4 $tp 2 $pp 2
long tensor2 same 2 $tp 2 --recompute-granularity full
short one near 8 $tp 2 $pp 2 $chunk 1 --sequence-parallel --zero-stage 3 --recompute-granularity full
long one near 8 $tp 2 --zero-stage 2
long one near 8 $tp 4 $pp 2
long one near 8 $tp 2 $pp 4 --sequence-parallel
short one near 2 $cp 2
long one near 4 $cp 4
long one near 2 $cp 2 --recompute-granularity full
long one near 2 $cp 2 --zero-stage 3
short one near 8 $cp 2 $tp 2 $pp 2 --sequence-parallel --recompute-granularity selective
long one near 4 $cp 2 --zero-stage 2
long one near 8 $cp 2 $tp 2 --zero-stage 1
long one near 8 $cp 4 $pp 2 $chunk 1
long one near 8 $cp 2 $pp 2 --pipeline-schedule zero-bubble --zero-stage 1
long one near 8 $cp 2 $tp 2 --layout-order cp-dp-tp-pp
short dropped near 4 $cp 2 $dropout --zero-stage 1
long dropped near 8 $cp 4 $tp 2 $dropout --sequence-parallel
short llama near 4 $cp 2 $tp 2 $llama --sequence-parallel
short llama same 2 $pp 2 $llama --recompute-granularity full
long llama near 2 $tp 2 $llama --zero-stage 0
long llama same 1 $llama --recompute-granularity selective
long llama near 8 $tp 2 $pp 2 $llama --pipeline-schedule zero-bubble --zero-stage 1
short dropped same 2 $pp 2 $dropout --recompute-granularity full
long dropped near 4 $tp 2 $dropout --sequence-parallel --zero-stage 2
short one_bitwise same 4 --bitwise-layouts
long one_bitwise same 4 $tp 4 --bitwise-layouts
short one_bitwise same 8 $tp 2 $pp 2 --bitwise-layouts --zero-stage 1
long one_bitwise same 8 --bitwise-layouts --zero-stage 3
END
}
table | while read -r when base how ranks flags; do
    [ "$when" = short ] || [ -n "${TEST_LONG:-}" ] || continue
    # shellcheck disable=SC2086
    run this "$ranks" $flags
    printf '%s ranks, %s: ' "$ranks" "$flags"
    compare "$base" this "$how" || { echo "FAIL: not $how as $base"; exit 1; }
done

# All of tensor 1, 2, 4 x data 1, 2, 4 x sequence parallel, near one process; and on each of them all of pipeline 1, 2, 4 x chunks x ZeRO 0
# to 3 x recomputation that fit 8 processes, with the same bits.
grid() {
    for t in 1 2 4; do
        for d in 1 2 4; do
            for s in '' --sequence-parallel; do
                [ $((t * d)) -le 8 ] && { [ -z "$s" ] || [ $t != 1 ]; } || continue
                # shellcheck disable=SC2086
                run base $((t * d)) $tp $t $s
                compare one base near >/dev/null || { compare one base near; return 1; }
                for p in 1 2 4; do
                    [ $((t * d * p)) -le 8 ] || continue
                    chunks='0 1'
                    [ $p = 2 ] || chunks=0
                    for v in $chunks; do
                        for z in 0 1 2 3; do
                            [ $d != 1 ] || [ $z = 0 ] || continue
                            for r in none selective full; do
                                # shellcheck disable=SC2086
                                run this $((t * d * p)) $tp $t $s $pp $p $chunk $v --zero-stage $z --recompute-granularity $r
                                compare base this same >/dev/null || { echo "tensor $t data $d pipeline $p chunks of $v ZeRO $z $r $s"; compare base this same; return 1; }
                                echo "tensor $t data $d pipeline $p chunks of $v ZeRO $z recompute $r $s: ok"
                            done
                        done
                    done
                done
            done
        done
    done
}
[ -z "${TEST_LONG:-}" ] || grid

# What cannot be is refused at start, with every rule that is broken and what would do.
# refused "FLAGS" RULE...
refused() {
    # shellcheck disable=SC2086
    if ./hkt-run -n 6 ./hkt-train $tiny $1 >"$scratch/said" 2>&1; then
        echo "FAIL: a layout that cannot be was not refused"
        exit 1
    fi
    shift
    for rule; do
        grep -q -e "$rule" "$scratch/said" || { cat "$scratch/said"; echo "FAIL: '$rule' is not said"; exit 1; }
    done
}
refused "$tp 3 $pp 4" 'rules are broken' 'attention heads 4 is no multiple' 'world'
refused "--swiglu --bitwise-layouts" '--swiglu and --bitwise-layouts exclude each other'
refused "$cp 3 --bitwise-layouts" 'sequence length 32 is no multiple of 6' '--context-parallel-size and --bitwise-layouts'
