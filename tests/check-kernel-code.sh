#!/bin/sh
# Proves from the machine code that no kernel spills to local memory, that what moves data moves 16 bytes at a time, and that as many threads
# fit as are launched. Skipped in a build without nvcc.
set -eu
srcdir=${srcdir:-.}
[ -e src/device/kernels/hocket.fatbin ] && command -v python3 >/dev/null || exit 77
nvcc=$(sed -n 's/^NVCC = //p' Makefile)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# It must see what it looks for.
cat >"$scratch/spills.cu" <<'END'
extern "C" __global__ void hkt_move_bad(int *x, int n)
{
    int many[200];

    for (int i = 0; i < 200; i++)
        many[i] = x[i];
    for (int i = 0; i < n; i++)
        many[x[i] % 200] += i;
    for (int i = 0; i < 200; i++)
        x[i] = many[i];
}
END
"$nvcc" -Xptxas -v -arch=sm_90 -cubin -o "$scratch/spills.cubin" "$scratch/spills.cu" 2>"$scratch/spills.log"
if python3 "$srcdir/tests/kernel_code.py" "$scratch/spills.cubin" "$scratch/spills.log" >"$scratch/said"; then
    echo "self-test: a kernel with a local array passed"
    exit 1
fi
for text in 'bytes of stack' 'local memory' 'loads and 0 stores of 16 bytes'; do
    grep -q "$text" "$scratch/said" || { cat "$scratch/said"; echo "self-test: '$text' was not found"; exit 1; }
done

for cubin in src/device/kernels/sm_*.cubin; do
    echo "$cubin:"
    python3 "$srcdir/tests/kernel_code.py" "$cubin" "${cubin%.cubin}.log" || failed=1
done
[ -z "${failed:-}" ]
