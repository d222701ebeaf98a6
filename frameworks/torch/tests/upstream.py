#!/usr/bin/env python3
"""Runs the distributed tests of PyTorch's own source tree on hocket, and on gloo as the control.

    python3 upstream.py --source DIR [--limit 300] [--json FILE] [FILE ...]

DIR holds test/distributed as PyTorch's repository has it (Debian: apt-get source --download-only pytorch); it is not part of the package, and
nothing of it is here. Its files run as they are: HOCKET_TORCH_TAKE=gloo renames the backend that they ask for. Two things are changed: ranks are
forked instead of spawned, which is ten times faster, and DTensor's tests say "gloo" where they would ask for the default's name. FILE: below test/distributed; default: those of TESTS, which need no GPU and ask
for a backend by name. Printed for each file: passed, failed and skipped with hocket, with gloo, and every test that fails or is left out
with hocket alone. Ends with 1 when there is one.
"""
import argparse
import glob
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
TESTS = """test_c10d_common.py test_c10d_object_collectives.py test_c10d_functional_native.py test_functional_api.py test_collective_utils.py
    test_device_mesh.py test_c10d_logger.py test_pg_wrapper.py algorithms/test_join.py algorithms/quantization/test_quantization.py
    algorithms/ddp_comm_hooks/test_ddp_hooks.py optim/test_zero_redundancy_optimizer.py optim/test_named_optimizer.py
    _tensor/test_api.py _tensor/test_common_rules.py _tensor/test_dtensor.py _tensor/test_init.py _tensor/test_redistribute.py _tensor/test_math_ops.py
    _tensor/test_matrix_ops.py _tensor/test_optimizers.py _tensor/test_pointwise_ops.py _tensor/test_random_ops.py _tensor/test_tensor_ops.py
    _tensor/test_utils.py _tensor/test_view_ops.py tensor/parallel/test_parallelize_api.py tensor/parallel/test_tp_examples.py
    tensor/parallel/test_tp_style.py tensor/parallel/test_tp_random_state.py checkpoint/test_checkpoint.py checkpoint/test_dtensor_checkpoint.py
    checkpoint/test_dtensor_resharding.py checkpoint/test_file_system_checkpoint_cpu.py checkpoint/test_save_load_api.py
    checkpoint/test_tp_checkpoint.py checkpoint/test_utils.py _composable/test_replicate.py _composable/fsdp/test_fully_shard_init.py
    _composable/fsdp/test_fully_shard_training.py pipelining/test_schedule_multiproc.py pipelining/test_stage.py _shard/test_sharder.py
    _shard/sharded_tensor/test_sharded_tensor.py _shard/sharding_plan/test_sharding_plan.py""".split()


# ---- one file, in a process of its own


class Result(unittest.TestResult):
    """Test id: passed, failed or skipped, and why."""

    def __init__(self, path):
        super().__init__()
        self.path, self.found = path, {}

    def _add(self, test, what, why=""):
        lines = [line for line in why.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)] or why.strip().splitlines() or [""]
        self.found[test.id()] = (what, lines[-1][:300])
        pathlib.Path(self.path).write_text(json.dumps(self.found))

    def startTest(self, test):
        super().startTest(test)
        print(f"+ {test.id()}", file=sys.stderr, flush=True)

    def addSuccess(self, test):
        self._add(test, "passed")

    def addFailure(self, test, err):
        self._add(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure

    def addSkip(self, test, reason):
        self._add(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        self._add(test, "passed")

    def addUnexpectedSuccess(self, test):
        self._add(test, "failed", "unexpected success")


def one_file(path, out):
    sys.path[:0] = [str(pathlib.Path(path).parent), str(HERE.parent)]
    import torch
    import torch.multiprocessing
    import torch.testing._internal.common_distributed as common
    import torch.testing._internal.common_utils as utils
    import hocket.torch  # noqa: F401
    torch.set_num_threads(1)
    fork = torch.multiprocessing.get_context("fork").Process
    common.MultiProcessTestCase._spawn_processes = lambda self: self._start_processes(fork)
    try:  # it takes the name of the default backend, and refuses all but those that it knows
        import torch.testing._internal.distributed._tensor.common_dtensor as dtensor
        dtensor.DTensorTestBase.backend = property(lambda self: "gloo")
    except ImportError:  # old versions
        pass
    common.TIMEOUT_DEFAULT = int(os.environ.get("TEST_SECONDS", "100"))
    if hasattr(utils, "check_test_defined_in_running_script"):  # this one runs them
        utils.check_test_defined_in_running_script = lambda test: None
    name = pathlib.Path(path).stem
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    tests = unittest.defaultTestLoader.loadTestsFromModule(module)
    pathlib.Path(out).write_text("{}")
    tests.run(Result(out))
    os._exit(0)


# ---- all


def run(backend, source, file, limit):
    """What happened to each test of a file; what had not ended at the limit is missing."""
    env = dict(os.environ, OMP_NUM_THREADS="1", BACKEND="gloo", WORLD_SIZE="2", GLOO_SOCKET_IFNAME="lo", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000))
    env.pop("HOCKET_TORCH_TAKE", None)
    if backend == "hocket":
        env["HOCKET_TORCH_TAKE"] = "gloo"
    path = pathlib.Path(source, "test", "distributed", file).resolve()
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "result")
        with open(pathlib.Path(folder, "log"), "w+") as log:
            process = subprocess.Popen([sys.executable, __file__, "--one", str(path), str(out)], env=env, cwd=path.parent, stdout=log, stderr=log,
                                       start_new_session=True)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = "not done in time"
            subprocess.run(["sh", "-c", f"kill -9 -- -{process.pid} 2>/dev/null"])
            process.wait()
            log.seek(0)
            text = log.read()
        if not out.exists():
            return {}, f"cannot be loaded: {text.strip().splitlines()[-1][-200:] if text.strip() else code}"
        found = json.loads(out.read_text())
    started = [line[2:] for line in text.splitlines() if line.startswith("+ ")]
    late = [test for test in started if test not in found]
    return found, f"ended with {code} in {late[-1]}" if late else ""


def sums(found):
    return "/".join(str(sum(what == kind for what, _ in found.values())) for kind in ("passed", "failed", "skipped"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--limit", type=float, default=300, help="seconds of a file and backend")
    parser.add_argument("--json")
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    known = {os.path.relpath(p, pathlib.Path(args.source, "test", "distributed")) for p in
             glob.glob(str(pathlib.Path(args.source, "test", "distributed", "**", "*.py")), recursive=True)}
    everything, ours = {}, 0
    for file in args.files or [f for f in TESTS if f in known]:
        found = {backend: run(backend, args.source, file, args.limit) for backend in ("gloo", "hocket")}
        everything[file] = found
        (gloo, gloo_end), (mine, my_end) = found["gloo"], found["hocket"]
        print(f"{file:50s} passed/failed/skipped: hocket {sums(mine):12s} gloo {sums(gloo):12s}" + (f" hocket {my_end}" if my_end else "") +
              (f"; gloo {gloo_end}" if gloo_end else ""), flush=True)
        for test, (what, why) in mine.items():
            of_gloo = gloo.get(test, ("unknown", ""))[0]
            if what != of_gloo and what != "passed":
                ours += what == "failed" and of_gloo == "passed"
                print(f"    {what} with hocket, {of_gloo} with gloo: {test}: {why}", flush=True)
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps(everything, indent=1))
    total = {backend: {f"{f}:{t}": r for f, found in everything.items() for t, r in found[backend][0].items()} for backend in ("hocket", "gloo")}
    print(f"all: passed/failed/skipped: hocket {sums(total['hocket'])}, gloo {sums(total['gloo'])}; failed with hocket alone: {ours}")
    sys.exit(1 if ours else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one_file(*sys.argv[2:4])
    main()
