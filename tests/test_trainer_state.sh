#!/bin/sh
# Proves that checkpoints bring a run back: 10 + 10 steps are 20 bit for bit (dropout on, cases C15, C16), any layout goes on from what any
# other has saved (C17), a job whose rank is killed is started again by hkt-run and ends with the same bits, saves beside the training are the
# same, a sample does not depend on the layout; and that fp16, bf16, codecs and a ramping batch train, and go on from their state.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
text=${srcdir:-.}/trainer
tiny="--data-path $text --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --micro-batch-size 1 --global-batch-size 8
    --init-method-std 0.1 --train-iters 20 --lr-warmup-iters 5 --log-interval 100 --eval-interval 0 --sample-tokens 0 --threads 1 --seed 7
    --hidden-dropout 0.1 --attention-dropout 0.1"
pp='--pipeline-model-parallel-size' tp='--tensor-model-parallel-size' cp='--context-parallel-size'

# train RANKS LOSSES [flags]
train() {
    ranks=$1 losses=$2
    shift 2
    # shellcheck disable=SC2086
    ./hkt-run -n "$ranks" ./hkt-train $tiny --loss-file "$scratch/$losses" "$@" >"$scratch/said" 2>&1 ||
        { tail -n 20 "$scratch/said"; echo "FAIL: $ranks ranks, $*"; exit 1; }
}
fail() { echo "FAIL: $*"; exit 1; }

# Resume, on the layout that saved and on others.
train 1 whole
tail -n 10 "$scratch/whole" >"$scratch/rest"
train 1 half --exit-interval 10 --save "$scratch/one"
train 1 again --load "$scratch/one"
cmp "$scratch/rest" "$scratch/again" || fail "10 + 10 steps are not 20"
train 2 again --load "$scratch/one" $pp 2
cmp "$scratch/rest" "$scratch/again" || fail "10 steps of one process and 10 of two stages are not 20"
train 4 half $tp 2 --sequence-parallel --zero-stage 3 --exit-interval 10 --save "$scratch/four" --async-save --save-interval 4 --keep-checkpoints 0
for layout in "1" "2 $pp 2 --zero-stage 0" "8 $tp 4 $pp 2" "2 --zero-stage 1 --optimizer-tier file --optimizer-file $scratch/optimizer" \
    "4 $cp 2 --zero-stage 1"; do
    # shellcheck disable=SC2086
    set -- $layout
    ranks=$1
    shift
    train "$ranks" again --load "$scratch/four" "$@"
    paste -d ' ' "$scratch/rest" "$scratch/again" | awk '{ d = ($3 - $7) / $3; if (d > 1e-5 || d < -1e-5 || $2 != $6) exit 1; n++ } END { exit n != 10 }' ||
        fail "4 ranks saved, $layout went on otherwise"
done
train 4 again $tp 2 --sequence-parallel --zero-stage 3 --load "$scratch/four" --ckpt-step 8 --train-iters 12 --lr-decay-iters 20
[ "$(head -n 1 "$scratch/again" | cut -d ' ' -f 2)" = 9 ] || fail "--ckpt-step 8 does not go on with step 9"

# Gates, root-mean-square norms and grouped queries: tensors with halves, and others than GPT-2's. Saved by context- and tensor-parallel ranks.
llama='--swiglu --normalization RMSNorm --disable-bias-linear --group-query-attention --num-query-groups 2 --position-embedding-type rope
    --untie-embeddings-and-output-weights'
# shellcheck disable=SC2086
train 1 whole_llama $llama
tail -n 10 "$scratch/whole_llama" >"$scratch/rest_llama"
# shellcheck disable=SC2086
train 8 half $llama $tp 2 $cp 2 $pp 2 --sequence-parallel --exit-interval 10 --save "$scratch/llama"
for layout in "1" "4 $tp 2 --zero-stage 3" "2 $pp 2"; do
    # shellcheck disable=SC2086
    set -- $layout
    ranks=$1
    shift
    # shellcheck disable=SC2086
    train "$ranks" again $llama --load "$scratch/llama" "$@"
    paste -d ' ' "$scratch/rest_llama" "$scratch/again" | awk '{ d = ($3 - $7) / $3; if (d > 1e-5 || d < -1e-5 || $2 != $6) exit 1; n++ } END { exit n != 10 }' ||
        fail "8 ranks saved gates, $layout went on otherwise"
done
# shellcheck disable=SC2086
if ./hkt-train $tiny $llama --normalization LayerNorm --load "$scratch/llama" >"$scratch/said" 2>&1 ||
    ! grep -q "the checkpoint's normalization is 1, that of this run 0" "$scratch/said"; then
    fail "a checkpoint with other norms was loaded"
fi

# A rank is killed when step 4 is on disk; the job is started again and ends as if nothing had been. Nothing that is saved is lost.
cat >"$scratch/killed.sh" <<'END'
if [ "$HKT_RESTART" = 0 ] && [ "$HKT_RANK" = 1 ]; then
    "$@" &
    until [ -e "$FOLDER/step-0000000004" ]; do sleep 0.01; done
    kill -9 $! && exit 9
fi
exec "$@"
END
# shellcheck disable=SC2086
FOLDER=$scratch/killed ./hkt-run -n 2 --restart 2 sh "$scratch/killed.sh" ./hkt-train $tiny --train-iters 100 --lr-decay-iters 20 $pp 2 --save "$scratch/killed" \
    --load "$scratch/killed" --save-interval 4 --loss-file "$scratch/again" >"$scratch/said" 2>&1 || { cat "$scratch/said"; fail "the job was not brought back"; }
grep -q 'starting the job again, 1 of 2' "$scratch/said" || { cat "$scratch/said"; fail "the job was not started again"; }
grep -q '^loaded .*step' "$scratch/said" || { cat "$scratch/said"; fail "it did not go on from a checkpoint"; }
train 2 whole100 --train-iters 100 --lr-decay-iters 20 $pp 2
tail -n "$(wc -l <"$scratch/again")" "$scratch/whole100" | cmp - "$scratch/again" ||
    fail "the job that was brought back has other losses"

# A sample is the same on every layout, and needs what it is made from.
for layout in "1" "2 $pp 2" "4 $tp 4 --sequence-parallel" "2 --zero-stage 3" "4 $cp 2 $tp 2 --sequence-parallel"; do
    # shellcheck disable=SC2086
    set -- $layout
    ranks=$1
    shift
    train "$ranks" none "$@" --load "$scratch/one" --generate --sample-tokens 50
    grep -a -A 100 '^sample' "$scratch/said" >"$scratch/sample"
    [ -e "$scratch/first" ] || cp "$scratch/sample" "$scratch/first"
    cmp "$scratch/first" "$scratch/sample" || fail "$layout writes another sample"
done
if ./hkt-train $tiny --load "$scratch/one" --num-attention-heads 8 >"$scratch/said" 2>&1 || ! grep -q "the checkpoint's num-attention-heads is 4, that of this run 8" "$scratch/said"; then
    fail "a checkpoint of another model was loaded"
fi

# Token files with packed documents, and a model that comes from elsewhere: its loss is that of the run that it was exported from.
cat "$text"/*.c >"$scratch/text.txt"
./hkt-data train-tokenizer -o "$scratch/bpe" --vocab-size 500 "$scratch/text.txt" >/dev/null
./hkt-data tokenize -o "$scratch/tokens" --vocab-file "$scratch/bpe/vocab.json" --merge-file "$scratch/bpe/merges.txt" --document paragraph --append-eod \
    "$scratch/text.txt" >/dev/null
packed="--data-path $scratch/tokens --tokenizer bpe:$scratch/bpe --reset-position-ids --reset-attention-mask --eod-mask-loss"
# shellcheck disable=SC2086
train 1 packed $packed --eval-interval 20 --eval-iters 2 --save "$scratch/exported"
# shellcheck disable=SC2086
train 4 again $packed --eval-interval 20 --eval-iters 2 $tp 2 $pp 2 --sequence-parallel
paste -d ' ' "$scratch/packed" "$scratch/again" | awk '{ d = ($3 - $7) / $3; if (d > 1e-5 || d < -1e-5) exit 1; n++ } END { exit n != 21 }' ||
    fail "packed documents train another model on 4 ranks"
./hkt-data export -o "$scratch/model.safetensors" "$scratch/exported" >/dev/null
./hkt-data import -o "$scratch/imported" --num-attention-heads 4 "$scratch/model.safetensors" >/dev/null
# shellcheck disable=SC2086
train 2 again $packed --load "$scratch/imported" --train-iters 1 --lr 0 --min-lr 0 --eval-interval 1 --eval-iters 2 $tp 2
[ "$(tail -n 1 "$scratch/packed" | cut -d ' ' -f 3 | cut -c 1-7)" = "$(tail -n 1 "$scratch/again" | cut -d ' ' -f 3 | cut -c 1-7)" ] ||
    fail "an imported model has another loss"

# Other numbers.
for flags in --bf16 --fp16 "--codec int8" "--rampup-batch-size 4,4,24" "--fp16 --loss-scale 1024"; do
    # shellcheck disable=SC2086
    train 2 other $flags
    awk '$1 == "step" { loss[$2] = $3 } END { exit !(loss[20] < 0.8 * loss[1]) }' "$scratch/other" || fail "the loss does not fall with $flags"
done
train 2 other --fp16 --initial-loss-scale 16777216 --hysteresis 1 # overflows, is halved until it fits
grep -q skipped "$scratch/other" || fail "no step overflowed"
! tail -n 2 "$scratch/other" | grep -q skipped || fail "the scale did not come down"
train 2 half --fp16 --exit-interval 10 --save "$scratch/fp16" --initial-loss-scale 16777216 --hysteresis 1
train 2 again --fp16 --load "$scratch/fp16" --initial-loss-scale 16777216 --hysteresis 1
tail -n 10 "$scratch/other" | cmp - "$scratch/again" || fail "10 + 10 steps in fp16 are not 20"

# What a codec keeps of the gradients is saved: the same layout goes on with the same bits, another one begins without errors and says so.
for codec in "int8 --zero-stage 2" "onebit:block=128 --optimizer onebit-adam --freeze-step 5" onebit; do
    # shellcheck disable=SC2086
    set -- --codec $codec
    train 2 other "$@"
    train 2 half "$@" --exit-interval 10 --save "$scratch/code-$2" --async-save
    train 2 again "$@" --load "$scratch/code-$2"
    tail -n 10 "$scratch/other" | cmp - "$scratch/again" || fail "10 + 10 steps with --codec $codec are not 20"
    ! grep -q 'begin at zero' "$scratch/said" || fail "--codec $codec: the errors were not loaded"
done
train 2 again --codec onebit --bucket-bytes 4096 --load "$scratch/code-onebit"
grep -q 'no errors of this codec in this layout: they begin at zero' "$scratch/said" || fail "other buckets go on with errors that are not theirs"
! tail -n 10 "$scratch/other" | cmp -s - "$scratch/again" || fail "errors of other buckets change nothing: the comparison cannot fail"
train 4 again --codec onebit --load "$scratch/code-onebit"
grep -q 'they begin at zero' "$scratch/said" || fail "other ranks go on with errors that are not theirs"
./hkt-data checkpoint "$scratch/code-onebit" >"$scratch/said" || fail "a checkpoint with a codec's errors is not whole"
grep -q 'extra .*codec.rank-00001' "$scratch/said" || fail "the errors of rank 1 are not in the checkpoint"
echo "PASS"
