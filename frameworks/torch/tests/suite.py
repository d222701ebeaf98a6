#!/usr/bin/env python3
"""Runs PyTorch's own suite for distributed backends on hocket.

    [BACKEND=gloo] [WORLD_SIZE=4] python3 suite.py [-l] [NAME ...]

DistributedTest comes inside PyTorch (torch/testing/_internal/distributed/distributed_test.py). It asks for backends by name to know what they
can; it is loaded from the PyTorch that is installed with "hocket" added wherever it says that gloo, or for all_to_all mpi, can do something.
Nothing else is changed. Tests that need a GPU are left out by name. Prints a line for each test that failed or was skipped and why, and the sums.
"""
import importlib.util
import os
import pathlib
import re
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
os.environ.setdefault("BACKEND", "hocket")
os.environ.setdefault("WORLD_SIZE", "4")
os.environ.setdefault("INIT_METHOD", "file://" + tempfile.mkstemp()[1])
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29511")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402,F401
import torch.testing._internal.common_distributed as common  # noqa: E402

import hocket.torch  # noqa: E402,F401

BACKEND = os.environ["BACKEND"]
LEFT_OUT = re.compile(r"cuda|nccl|gpu|torchvision|_amp\b", re.I)
# By name, where no backend that PyTorch does not bring can pass.
NOT_OURS = {} if BACKEND == "gloo" else {
    "test_ddp_logging_data_cpu": "DDP's logger has a name for PyTorch's own backends only; all others are \"custom\" there",
    **({"test_monitored_barrier_" + name: "this PyTorch refuses all but gloo by name" for name in (
        "allreduce_hang", "allreduce_hang_wait_all_ranks", "failure_order", "gloo", "gloo_rank_0_timeout", "gloo_subgroup", "wait_all_ranks")}
       if hocket.torch._VERSION < (2, 8) else {})}
common.TIMEOUT_DEFAULT = int(os.environ.get("TEST_SECONDS", "60"))
for feature in ("ddp", "subgroup", "plugin"):
    common.DistTestCases.backend_feature[feature].add(BACKEND)


def load():
    spec = importlib.util.find_spec("torch.testing._internal.distributed.distributed_test")
    with open(spec.origin) as file:
        source = file.read()
    if BACKEND == "hocket":
        for old, new in (('{"gloo"}', '{"gloo", "hocket"}'), ('{"gloo", "nccl"}', '{"gloo", "nccl", "hocket"}'),
                         ('{"nccl", "gloo"}', '{"nccl", "gloo", "hocket"}'),
                         ('BACKEND != "gloo"', 'BACKEND not in ("gloo", "hocket")'), ('BACKEND != "mpi"', 'BACKEND not in ("mpi", "hocket")'),
                         ('BACKEND == "mpi" or BACKEND == "gloo"', 'BACKEND in ("mpi", "gloo", "hocket")'),
                         ("    dist.Backend.GLOO,\n", "    dist.Backend.GLOO, dist.Backend.HOCKET, dist.Backend.HOCKET.lower(),\n")):
            source = source.replace(old, new)
    module = types.ModuleType(spec.name)
    module.__file__ = spec.origin
    sys.modules[spec.name] = module
    exec(compile(source, spec.origin, "exec"), module.__dict__)
    return module


torch.set_num_threads(1)
suite_module = load()


class TestHocket(suite_module.TestDistBackend, suite_module.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)  # 10 times faster than spawn


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    if not names:
        names = [name for name in unittest.defaultTestLoader.getTestCaseNames(TestHocket) if not LEFT_OUT.search(name) and name not in NOT_OURS]
        for name, why in NOT_OURS.items():
            print(f"left out {name}: {why}")
    if "-l" in sys.argv:
        print("\n".join(names))
        return 0
    suite = unittest.TestSuite(TestHocket(name) for name in names)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    for kind, found in (("FAILED", result.failures + result.errors), ("skipped", result.skipped)):
        for test, why in found:
            print(f"{kind} {test.id().split('.')[-1]}: {why.strip().splitlines()[-1][-300:]}")
    bad = len(result.failures) + len(result.errors)
    print(f"{BACKEND}, {os.environ['WORLD_SIZE']} ranks: {result.testsRun - bad - len(result.skipped)} passed, {bad} failed, {len(result.skipped)} skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
