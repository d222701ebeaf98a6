#!/bin/sh
# Proves that the program in docs/nccl.md runs: Python, which knows libnccl.so.2 by its path only, is two ranks in one thread. Without Python it is skipped.
set -eu
srcdir=${srcdir:-.}
command -v python3 >/dev/null 2>&1 || { echo "skipped: no python3"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
library=$(pwd)/.libs/libnccl.so.2

sed -n '/^```python$/,/^```$/{/^```/d;p}' "$srcdir/docs/nccl.md" | sed "s|/usr/local/lib/hocket/nccl/libnccl.so.2|$library|" >"$scratch/program.py"
grep -q "$library" "$scratch/program.py" || { echo "docs/nccl.md has no program that loads the library"; exit 1; }
said=$(python3 "$scratch/program.py")
[ "$said" = "[11.0, 22.0, 33.0, 44.0] [11.0, 22.0, 33.0, 44.0]" ] || { echo "it says: $said"; exit 1; }

# errors are sentences
cat >"$scratch/wrong.py" <<EOF
import ctypes
nccl = ctypes.CDLL("$library")
nccl.ncclGetLastError.restype = ctypes.c_char_p
comm = ctypes.c_void_p()
nccl.ncclCommInitAll(ctypes.byref(comm), 1, None)
assert nccl.ncclBroadcast(None, None, ctypes.c_size_t(1), 7, 5, comm, None) == 4
print(nccl.ncclGetLastError(None).decode())
EOF
python3 "$scratch/wrong.py" >"$scratch/said"
grep -q 'root 5 is no rank of .*, whose ranks go from 0 to 0' "$scratch/said" || { cat "$scratch/said"; echo "the sentence is another one"; exit 1; }
