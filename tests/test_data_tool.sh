#!/bin/sh
# Proves what hkt-data does for its user: text through a tokenizer into token data and back, merged and verified; a model from
# safetensors to a checkpoint and back, byte for byte; wrong input refused with a sentence and exit status 1, wrong flags with 2; a manual
# page with every flag.
set -u
. "${srcdir:-.}/tests/tool.sh"
data=${DATA_TOOL:-./hkt-data}

# ---- text
text=$src/README.md
expect 0 "$data" train-tokenizer --vocab-size 400 -o "$dir/tokenizer" "$text"
bpe="--vocab-file $dir/tokenizer/vocab.json --merge-file $dir/tokenizer/merges.txt"
expect 0 "$data" tokenize $bpe -o "$dir/a" "$text"
expect 0 "$data" print $bpe --index 0 "$dir/a"
cmp -s "$dir/out" "$text" || fail "the text does not come back from its tokens"
expect 0 "$data" tokenize -o "$dir/bytes" "$text"
[ "$(wc -c <"$dir/bytes.bin")" = $((2 * $(wc -c <"$text"))) ] || fail "bytes are not one token each"
expect 0 "$data" tokenize $bpe --append-eod --document line -o "$dir/lines" "$text"
said out "^$dir/lines.bin: $(wc -l <"$text") documents" # an empty line is a document of its end
printf '{"id": 7, "text": "one\\ntwo \\u00e9"}\n\n{"text": "three", "more": {"text": 1}}\n' >"$dir/json"
expect 0 "$data" tokenize --json-key text -o "$dir/j" "$dir/json"
expect 0 "$data" print --index 0 "$dir/j"
said out '^111 110 101 10 116 119 111 32 195 169$'
expect 0 "$data" merge -o "$dir/both" "$dir/a" "$dir/lines"
expect 0 "$data" verify --vocab-size 400 "$dir/both" "$dir/a"
expect 1 "$data" verify --vocab-size 300 "$dir/both"
said err 'the vocabulary has 300'
expect 1 "$data" print --index 9 "$dir/a"
said err 'no sequence 9'
echo '{"text": 5}' >>"$dir/json"
expect 1 "$data" tokenize --json-key text -o "$dir/bad" "$dir/json"
said err 'line 4: a string expected'
[ ! -e "$dir/bad.idx" ] && [ ! -e "$dir/bad.bin" ] && [ ! -e "$dir/bad.bin.tmp" ] || fail "a failed tokenize leaves files"
head -c 50 "$dir/a.idx" >"$dir/cut.idx"
cp "$dir/a.bin" "$dir/cut.bin"
expect 1 "$data" verify "$dir/cut"
said err 'cut.idx is cut off'
expect 1 "$data" tokenize -o "$dir/x" "$dir/nothing"
said err 'No such file'
expect 1 "$data" tokenize --vocab-file "$dir/tokenizer/vocab.json" -o "$dir/x" "$text"

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
expect 0 "$data" import --num-attention-heads 2 -o "$dir/run" "$dir/model.safetensors"
expect 0 "$data" checkpoint "$dir/run"
said out 'step 0, saved by 1 ranks, 16 pieces'
said out 'num-attention-heads = 2'
said out 'weight   float32   12x4 h.0.attn.c_attn.weight, 1 piece'
said out '  whole'
expect 0 "$data" export -o "$dir/back.safetensors" "$dir/run"
cmp -s "$dir/model.safetensors" "$dir/back.safetensors" || fail "the model does not come back as it was"
expect 1 "$data" export -o "$dir/x" --step 9 "$dir/run"
said err 'no checkpoint of step 9'
expect 1 "$data" export -o "$dir/x" --num-attention-heads 3 "$dir/run"
said err 'heads divide the width'
expect 1 "$data" import -o "$dir/x" "$text"
said err 'no file of safetensors'
for file in "$dir"/run/step-*/rank-00000.data; do
    printf x | dd of="$file" bs=1 seek=100 conv=notrunc 2>"$dir/dd"
done
expect 1 "$data" checkpoint "$dir/run"
said err 'rank-00000.data is damaged between offset 0'

# ---- the tool
expect 2 "$data"
expect 2 "$data" frobnicate x
expect 2 "$data" merge "$dir/a"
expect 2 "$data" verify
expect 0 "$data" -h
for flag in $(grep -oE -- '--[a-z-]+' "$dir/out" | sort -u); do
    sed 's/\\-/-/g; s/\\f[A-Z]//g' "$src/docs/man/hkt-data.1" | grep -q -e "$flag" || fail "the manual page does not have $flag"
done

finish
