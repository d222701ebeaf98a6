#!/usr/bin/env python3
"""Runs every test_*.py beside it. TEST_LONG=1: PyTorch's own suite as well (suite.py, minutes)."""
import os
import pathlib
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
names = sorted(p.name for p in here.glob("test_*.py")) + (["suite.py"] if os.environ.get("TEST_LONG") else [])
failed = []
for name in names:
    print(f"- {name}", flush=True)
    if subprocess.run([sys.executable, str(here / name)]).returncode:
        failed.append(name)
print(f"failed: {', '.join(failed)}" if failed else "all good")
sys.exit(1 if failed else 0)
