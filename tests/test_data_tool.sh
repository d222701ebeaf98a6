#!/bin/sh
# Proves what hkt-data does for its user: text through a tokenizer into token data and back, merged and verified; a model from
# safetensors to a checkpoint and back, byte for byte; wrong input refused with a sentence and exit status 1, wrong flags with 2; a manual
# page with every flag.
set -u
src=${srcdir:-.}
data=${DATA_TOOL:-./hkt-data}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# expect CODE FLAGS...: runs the tool; its output is in $dir/out and $dir/err.
expect() {
    code=$1
    shift
    "$data" "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    [ $got = "$code" ] || fail "hkt-data $*: exit status $got instead of $code ($(head -c 300 "$dir/err"))"
}

# said FILE PATTERN
said() {
    grep -q -e "$2" "$dir/$1" || fail "\"$2\" is not in the $1 of the last call: $(head -c 300 "$dir/$1")"
}

# ---- text
text=$src/README.md
expect 0 train-tokenizer --vocab-size 400 -o "$dir/tokenizer" "$text"
bpe="--vocab-file $dir/tokenizer/vocab.json --merge-file $dir/tokenizer/merges.txt"
expect 0 tokenize $bpe -o "$dir/a" "$text"
expect 0 print $bpe --index 0 "$dir/a"
cmp -s "$dir/out" "$text" || fail "the text does not come back from its tokens"
expect 0 tokenize -o "$dir/bytes" "$text"
[ "$(wc -c <"$dir/bytes.bin")" = $((2 * $(wc -c <"$text"))) ] || fail "bytes are not one token each"
expect 0 tokenize $bpe --append-eod --document line -o "$dir/lines" "$text"
said out "^$dir/lines.bin: $(wc -l <"$text") documents" # an empty line is a document of its end
printf '{"id": 7, "text": "one\\ntwo \\u00e9"}\n\n{"text": "three", "more": {"text": 1}}\n' >"$dir/json"
expect 0 tokenize --json-key text -o "$dir/j" "$dir/json"
expect 0 print --index 0 "$dir/j"
said out '^111 110 101 10 116 119 111 32 195 169$'
expect 0 merge -o "$dir/both" "$dir/a" "$dir/lines"
expect 0 verify --vocab-size 400 "$dir/both" "$dir/a"
expect 1 verify --vocab-size 300 "$dir/both"
said err 'the vocabulary has 300'
expect 1 print --index 9 "$dir/a"
said err 'no sequence 9'
echo '{"text": 5}' >>"$dir/json"
expect 1 tokenize --json-key text -o "$dir/bad" "$dir/json"
said err 'line 4: a string expected'
[ ! -e "$dir/bad.idx" ] && [ ! -e "$dir/bad.bin" ] && [ ! -e "$dir/bad.bin.tmp" ] || fail "a failed tokenize leaves files"
head -c 50 "$dir/a.idx" >"$dir/cut.idx"
cp "$dir/a.bin" "$dir/cut.bin"
expect 1 verify "$dir/cut"
said err 'cut.idx is cut off'
expect 1 tokenize -o "$dir/x" "$dir/nothing"
said err 'No such file'
expect 1 tokenize --vocab-file "$dir/tokenizer/vocab.json" -o "$dir/x" "$text"

# ---- models: one layer of width 4, an MLP of 8, 3 positions, 5 tokens; the numbers are bytes of a text
awk 'BEGIN {
    n = split("h.0.attn.c_attn.bias 12 h.0.attn.c_attn.weight 4,12 h.0.attn.c_proj.bias 4 h.0.attn.c_proj.weight 4,4 h.0.ln_1.bias 4 " \
              "h.0.ln_1.weight 4 h.0.ln_2.bias 4 h.0.ln_2.weight 4 h.0.mlp.c_fc.bias 8 h.0.mlp.c_fc.weight 4,8 h.0.mlp.c_proj.bias 4 " \
              "h.0.mlp.c_proj.weight 8,4 ln_f.bias 4 ln_f.weight 4 wpe.weight 3,4 wte.weight 5,4", w, " ")
    text = "{\"__metadata__\":{\"format\":\"pt\"}"
    for (i = 1; i < n; i += 2) {
        size = 4 * (split(w[i + 1], d, ",") == 2 ? d[1] * d[2] : d[1])
        text = text sprintf(",\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%d,%d]}", w[i], w[i + 1], at, at + size)
        at += size
    }
    text = text "}"
    while (length(text) % 8)
        text = text " "
    printf "%s", text
    printf "%d", at >"/dev/stderr"
}' >"$dir/header" 2>"$dir/size"
n=$(wc -c <"$dir/header")
{
    printf "$(printf '\\%03o\\%03o\\000\\000\\000\\000\\000\\000' $((n % 256)) $((n / 256)))"
    cat "$dir/header"
    head -c "$(cat "$dir/size")" "$src/COPYING"
} >"$dir/model.safetensors"
expect 0 import --num-attention-heads 2 -o "$dir/run" "$dir/model.safetensors"
expect 0 checkpoint "$dir/run"
said out 'step 0, saved by 1 ranks, 16 pieces'
said out 'num-attention-heads = 2'
said out 'weight   float32   12x4 h.0.attn.c_attn.weight, 1 piece'
said out '  whole'
expect 0 export -o "$dir/back.safetensors" "$dir/run"
cmp -s "$dir/model.safetensors" "$dir/back.safetensors" || fail "the model does not come back as it was"
expect 1 export -o "$dir/x" --step 9 "$dir/run"
said err 'no checkpoint of step 9'
expect 1 export -o "$dir/x" --num-attention-heads 3 "$dir/run"
said err 'heads divide the width'
expect 1 import -o "$dir/x" "$text"
said err 'no file of safetensors'
for file in "$dir"/run/step-*/rank-00000.data; do
    printf x | dd of="$file" bs=1 seek=100 conv=notrunc 2>"$dir/dd"
done
expect 1 checkpoint "$dir/run"
said err 'rank-00000.data is damaged between offset 0'

# ---- the tool
expect 2
expect 2 frobnicate x
expect 2 merge "$dir/a"
expect 2 verify
expect 0 -h
for flag in $(grep -oE -- '--[a-z-]+' "$dir/out" | sort -u); do
    sed 's/\\-/-/g; s/\\f[A-Z]//g' "$src/docs/man/hkt-data.1" | grep -q -e "$flag" || fail "the manual page does not have $flag"
done

[ $failures = 0 ] || exit 1
echo "hkt-data: all is as it should be"
