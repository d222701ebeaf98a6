#!/bin/sh
# Proves what hkt-plan shows and writes: the plan of a published run and why, JSON and SVG that are whole, machines that come back from
# their file, exit codes, and a manual page with every flag.
set -u
. "${srcdir:-.}/tests/tool.sh"
plan=${PLAN_TOOL:-./hkt-plan}

bloom="--model bloom-176b --machine a100-80g-dgx -n 384 -b 2048"

# BLOOM's layout, its reasons, and the sizes of its checkpoint
expect 0 "$plan" $bloom --json "$dir/plan.json" --svg "$dir/plan.svg"
said out '^   1    4    1   12     8 .* 1 selective  yes  no   2 x 128'
said out 'a checkpoint: 2.24 TiB, its weights 328 GiB'
said out 'TP 4 PP 3 DP 32: even with ZeRO 1, full recomputation, .* needs 86.2 GiB of 72.6'
said out 'DP 96 does not divide the 2048 sequences'
said out 'TP 8 PP 12 DP 4 .* slower; most of it is TP'
said out 'computation: products take .* %'
said out 'layers by stage: 6\*11,4'
[ "$(grep -c 'does not fit\|needs .* GiB of' "$dir/out")" -ge 6 ] || fail "reasons of memory are missing"
tail -1 "$dir/plan.svg" | grep -q '</svg>' || fail "the drawing is not whole"
! grep -q 'nan\|inf[" ]' "$dir/plan.svg" || fail "the drawing has numbers that are none"

# the JSON holds what the table shows
if command -v python3 >/dev/null; then
    python3 - "$dir/plan.json" <<'PYTHON' || fail "JSON"
import json, sys
data = json.load(open(sys.argv[1]))
families = data["families"]
best = families[0]
assert (best["tp"], best["pp"], best["dp"], best["zero"]) == (4, 12, 8, 1), best
assert abs(sum(best["parts"].values()) / best["step"] - 1) < 1e-6
assert best["micro_batch"] * best["micro_batches"] * best["dp"] == data["global_batch"]
assert all(f["found"] or f["reason"] for f in families) and len(families) == 480
assert len(data["stages"]) == 12 and sum(s["layers"] for s in data["stages"]) == 70
assert max(s["total"] for s in data["stages"]) == best["memory"] <= data["machine"]["memory"]
PYTHON
    "$plan" $bloom --json - | python3 -c 'import json, sys; json.load(sys.stdin)' || fail "JSON on the standard output"
fi

# limits hold, forced layouts are possible
expect 0 "$plan" $bloom --tensor-model-parallel-size 8 --schedule 1f1b --recompute full --zero 1 --sequence-parallel off
! grep -q 'selective' "$dir/out" || fail "a limit was not kept"
said out '^   1    8 '
expect 1 "$plan" --model 1t -n 8 --machine v100
said out 'There is no plan'
expect 2 "$plan" $bloom --tensor-model-parallel-size 5
expect 1 "$plan" $bloom --tensor-model-parallel-size 16 --schedule 1f1b
said out 'would leave the 8 devices joined by nvlink'
expect 0 "$plan" $bloom --tensor-model-parallel-size 16 --schedule 1f1b --force-tp

# a machine comes back from its file; flags change it; wrong ones are named
expect 0 "$plan" --machine h100-dgx --write-machine
cp "$dir/out" "$dir/machine"
expect 0 "$plan" --machine-file "$dir/machine" --write-machine
cmp -s "$dir/out" "$dir/machine" || fail "the machine changed on its way through a file: $(diff "$dir/out" "$dir/machine" | head -3)"
expect 0 "$plan" --machine-file "$dir/machine" --link a:4:100:5 --link b:0:10:20 --memory 40 --write-machine
said out '^link = b 0 1e+10 2e-05'
echo 'peak = fast' >"$dir/machine"
expect 2 "$plan" --machine-file "$dir/machine"
said err ':1: peak: a number is expected'
for flags in "--model gpt5" "--machine abacus" "--hidden-size 7" "--link x" "--machine-file $dir/none" "word" "--sweep-world 1,x" "--zero 4"; do
    expect 2 "$plan" $flags
done

# this computer is a machine, too
expect 0 "$plan" --machine cpu-this -n 2 -b 16 --precision fp32 --no-trial
said out '^cpu-this x 2: '

# and steps of a model are tried on it where hkt-train is there
if [ -x ./hkt-train ]; then
    proves "tried steps"
    expect 0 "$plan" --machine cpu-this -n 1 -b 16 --num-layers 1 --hidden-size 64 --num-attention-heads 2 --seq-length 64 --vocab-size 256 \
        --precision fp32 --write-machine
    equal "$(grep -c '^point = ' "$dir/out")" 5 "sizes of micro-batches that were tried"
    said out '^point = 64 '
    awk '/^point/ { f[n++] = $4 } END { r = f[0] / f[4]; exit !(n == 5 && r < 4) }' "$dir/out" || fail "micro-batches of a smaller batch are as slow: $(grep '^point' "$dir/out")"
    cp "$dir/out" "$dir/machine"
    expect 0 "$plan" --machine-file "$dir/machine" --write-machine
    cmp -s "$dir/out" "$dir/machine" || fail "the points changed on their way through a file: $(diff "$dir/out" "$dir/machine" | head -3)"
    printf 'point = 4\n' >>"$dir/machine"
    expect 2 "$plan" --machine-file "$dir/machine"
    said err 'point = TOKENS FACTOR'
fi
expect 0 "$plan" --machine cpu-this --model 175b -n 2 -b 16 --write-machine
said err 'too long to be tried'
not_said out '^point'

expect 0 "$plan" --model 7.5b --sweep-world 8,16,32
[ "$(grep -c ' DP ' "$dir/out")" = 3 ] || fail "three worlds are three lines"
expect 0 "$plan" --list
said out 'bloom-176b'
said out 'cpu-this'

# the manual page has every flag of -h and no other
page_is_whole hkt-plan "$plan"

finish
