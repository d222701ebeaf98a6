"""Runs a function on n ranks, each a forked process, and reports what the ranks found. What every test here is made of.

    @ranks.case(2, 4)                  # run with 2 and with 4 ranks
    def all_reduce_adds(rank, n): ...  # the default group is hocket's; ranks.gloo() is a group of the same ranks
    ranks.main()

A case fails when a rank raises, ends otherwise than with 0, or is not done after 60 seconds (TEST_SECONDS, for a machine that is busy).
"""
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
warnings.filterwarnings("ignore", category=UserWarning)
warnings.filterwarnings("ignore", category=FutureWarning)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import hocket.torch  # noqa: E402,F401

try:  # what optimizers and DDP import at their first use takes seconds: once, before the ranks are forked
    import torch._dynamo  # noqa: E402,F401
    import torch.distributed.fsdp  # noqa: E402,F401
except Exception:  # old versions have less, or cannot (Debian's 1.13 on Python 3.11)
    pass

VERSION = hocket.torch._VERSION
SECONDS = float(os.environ.get("TEST_SECONDS", "60"))
_cases = []
_gloo = None


class Skip(Exception):
    """A rank raises it with the reason."""


def case(*sizes, backend="hocket", expect=None, timeout=40):
    """expect: exit status by rank, where it is not 0 (a negative one: the signal); timeout: of the default group, seconds (longer where TEST_SECONDS is)."""
    def add(function):
        _cases.extend((function, n, backend, expect or {}, timeout) for n in sizes)
        return function

    return add


def gloo():
    """A group of all ranks on gloo. Collective at the first call."""
    global _gloo
    if _gloo is None:
        _gloo = dist.new_group(backend="gloo")
    return _gloo


def _rank(function, rank, n, backend, timeout, folder):
    import datetime
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(n), TMPDIR_OF_CASE=folder)
    try:
        if backend:
            dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=n,
                                    timeout=datetime.timedelta(seconds=timeout * SECONDS / 60))
        function(rank, n)
        if backend and dist.is_initialized():
            dist.destroy_process_group()
    except Skip as reason:
        pathlib.Path(folder, "skip").write_text(str(reason))
    except BaseException:  # all of them: this is the end of the process
        print(f"rank {rank} of {n}, {function.__name__}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _wait(pids, deadline):
    """Exit statuses by rank; None of those that had to be killed."""
    statuses = {}
    while len(statuses) < len(pids) and time.monotonic() < deadline:
        for rank, pid in pids.items():
            if rank not in statuses:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    statuses[rank] = os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    for rank, pid in pids.items():
        if rank not in statuses:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            statuses[rank] = None
    return statuses


def run(function, n, backend="hocket", expect=None, timeout=40):
    """True, False, or why it was skipped."""
    with tempfile.TemporaryDirectory() as folder:
        pids = {}
        for rank in range(n):
            pid = os.fork()
            if pid == 0:
                _rank(function, rank, n, backend, timeout, folder)
            pids[rank] = pid
        statuses = _wait(pids, time.monotonic() + SECONDS)
        skip = pathlib.Path(folder, "skip")
        if skip.exists():
            return skip.read_text()
    bad = {rank: s for rank, s in statuses.items() if s != (expect or {}).get(rank, 0)}
    for rank, status in bad.items():
        print(f"  {function.__name__}: rank {rank} of {n} " + ("was not done in time" if status is None else f"ended with {status}"))
    return not bad


def main():
    """Runs all cases of the file, or those whose names are given."""
    names = sys.argv[1:]
    failed = 0
    for function, n, backend, expect, timeout in _cases:
        if names and function.__name__ not in names:
            continue
        start = time.monotonic()
        result = run(function, n, backend, expect, timeout)
        word = "ok" if result is True else "FAIL" if result is False else f"skipped: {result}"
        failed += result is False
        print(f"{word:4s} {function.__name__} ({n} ranks, {time.monotonic() - start:.1f} s)", flush=True)
    sys.exit(1 if failed else 0)
