#!/bin/sh
# Proves the backend for PyTorch (frameworks/torch): builds it for a Python that has PyTorch, in a folder of its own, and runs its tests.
# Without PyTorch, or what building for it takes, it is skipped: it is too large to fetch for a test. TEST_TORCH_PYTHON names the Python.
# It takes some minutes, so that plain `make check` leaves it out.
set -eu
build=$(pwd)
if [ -z "${TEST_LONG:-}${TEST_TORCH_PYTHON:-}" ]; then
    echo "SKIP: takes minutes (it compiles against PyTorch's headers); make check-torch, TEST_LONG=1 or TEST_TORCH_PYTHON=... runs it"
    exit 77
fi
source=$(cd "${srcdir:-.}" && pwd)/frameworks/torch
for python in ${TEST_TORCH_PYTHON:-"${PYTHON:-python3}" /usr/bin/python3}; do
    if "$python" -c 'import numpy, setuptools, torch, torch.utils.cpp_extension, torch.distributed as d; exit(not d.is_gloo_available())' 2>/dev/null; then
        found=$python
        break
    fi
done
if [ -z "${found:-}" ]; then
    echo "SKIP: no Python with torch, numpy and setuptools (Debian: python3-torch libtorch-dev python3-dev pybind11-dev; TEST_TORCH_PYTHON names another)"
    exit 77
fi
if ! command -v c++ >/dev/null || ! [ -e "$("$found" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ]; then
    echo "SKIP: no C++ compiler or no headers of $found (Debian: g++ python3-dev)"
    exit 77
fi
mkdir -p frameworks/torch
(cd "$source" && tar cf - --exclude=./build --exclude='_C.*' .) | (cd frameworks/torch && tar xf -)
HOCKET_BUILD=$build make -C frameworks/torch PYTHON="$found"
exec "$found" frameworks/torch/tests/run.py
