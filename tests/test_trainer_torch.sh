#!/bin/sh
# Finds a Python that has PyTorch and runs trainer_torch.py with it. Without one: skipped (python3-torch of Debian, or torch of PyPI).
set -eu
for python in "${PYTHON:-python3}" /usr/bin/python3; do
    if "$python" -c 'import numpy, torch' 2>/dev/null; then
        exec "$python" "${srcdir:-.}/tests/trainer_torch.py" ./hkt-train "${srcdir:-.}/trainer"
    fi
done
echo "SKIP: no Python with torch and numpy (Debian: python3-torch)"
exit 77
