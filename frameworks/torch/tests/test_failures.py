"""What goes wrong is said by name, soon, on every rank, and leaves nothing behind."""
import datetime
import os
import re
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist

import ranks


def raises(call, *words):
    """The seconds until `call` raised; its text has all of the words."""
    start = time.monotonic()
    try:
        call()
    except (RuntimeError, ValueError) as error:
        for word in words:
            assert word in str(error), f"'{word}' is not in: {error}"
        return time.monotonic() - start
    raise AssertionError("nothing was raised")


def killed_once(path):
    """This rank kills itself and leaves the time in a file."""
    with open(path, "w") as file:
        file.write(str(time.monotonic()))
    os.kill(os.getpid(), signal.SIGKILL)


def since_death(path):
    with open(path) as file:
        return time.monotonic() - float(file.read())


def _killed(rank, n, call, name):
    path = os.path.join(os.environ["TMPDIR_OF_CASE"], "death")
    if rank == 1:
        dist.barrier()
        killed_once(path)
    try:
        dist.barrier()  # who leaves it last may hear of it here
        call()
        raise AssertionError("nothing was raised")
    except RuntimeError as error:
        assert re.search(r"rank 1 \(host [^)]*\)[^;]*died", str(error)), error
    seconds = since_death(path)
    if rank == 0:
        print(f"     {name}: raised {seconds * 1e3:.0f} ms after the death")
    assert seconds < float(os.environ.get("TEST_SECONDS", "60")) / 60, seconds
    dist.destroy_process_group()


@ranks.case(2, 4, expect={1: -signal.SIGKILL})
def death_in_a_collective(rank, n):
    _killed(rank, n, lambda: dist.all_reduce(torch.ones(1000)), "all_reduce")


@ranks.case(4, expect={1: -signal.SIGKILL})
def death_in_asynchronous_work(rank, n):
    _killed(rank, n, lambda: [w.wait() for w in [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(5)]], "async all_reduce")


@ranks.case(2, expect={1: -signal.SIGKILL})
def death_before_its_first_message(rank, n):
    _killed(rank, n, lambda: dist.recv(torch.ones(1000), 1), "recv")


@ranks.case(2, expect={1: -signal.SIGKILL})
def death_between_messages(rank, n):
    if rank == 1:
        dist.send(torch.ones(3), 0)
    else:
        dist.recv(torch.ones(3), 1)
    _killed(rank, n, lambda: dist.recv(torch.ones(1000), 1), "second recv")


@ranks.case(2, expect={1: -signal.SIGKILL})
def death_from_any(rank, n):
    _killed(rank, n, lambda: dist.recv(torch.ones(1000)), "recv from any")


@ranks.case(2, expect={1: -signal.SIGKILL})
def death_of_a_receiver(rank, n):
    _killed(rank, n, lambda: dist.send(torch.ones(1000000), 1), "send")


@ranks.case(2, timeout=1)
def deadline_of_the_group(rank, n):
    dist.barrier()
    if rank == 0:
        raises(lambda: dist.all_reduce(torch.ones(10)), "rank 1", "Timed out")
        raises(lambda: dist.all_reduce(torch.ones(10)), "rank 1")  # from now on, at once
    else:
        time.sleep(1.6 * ranks.SECONDS / 60)


@ranks.case(2)
def deadline_of_a_wait(rank, n):
    dist.barrier()
    if rank == 0:
        work = dist.all_reduce(torch.ones(10), async_op=True)
        raises(lambda: work.wait(datetime.timedelta(milliseconds=300)), "Timed out waiting 300ms", "all_reduce", "rank 1", "missing")
    else:
        time.sleep(1 * ranks.SECONDS / 60)


@ranks.case(2)
def deadline_of_a_message(rank, n):
    x = torch.zeros(3)
    if rank == 0:
        work = dist.irecv(x, 1, tag=1)
        raises(lambda: work.wait(datetime.timedelta(milliseconds=200)), "Timed out waiting 200ms", "recv", "rank 1, tag 1")
        dist.recv(x, 1)  # that one has not come: the channel goes on
        assert x[0] == 5
    else:
        time.sleep(0.5)
        dist.send(torch.full((3,), 5.0), 0)


@ranks.case(2)
def different_calls(rank, n):
    """Told at once, on both, and the group goes on."""
    raises(lambda: dist.all_reduce(torch.ones(10 + rank)), "all_reduce of 10 float32", "all_reduce of 11 float32")
    x = torch.ones(4)
    dist.all_reduce(x)
    assert x[0] == 2


@ranks.case(2)
def bad_arguments(rank, n):
    raises(lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND), "BAND", "non-integral")
    raises(lambda: dist.all_reduce(torch.ones(3, dtype=torch.bool), dist.ReduceOp.AVG), "AVG", "bools")
    raises(lambda: dist.all_gather([torch.ones(3)], torch.ones(3)), "2 tensors")
    raises(lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3)), "divide equally")
    raises(lambda: dist.all_to_all_single(torch.ones(4), torch.ones(4), [1, 2], [2, 2]), "Split sizes doesn't match")
    raises(lambda: dist.all_reduce(torch.ones(4).expand(3, 4)), "single memory location")
    x = torch.ones(4)
    dist.all_reduce(x)
    assert x[0] == 2


@ranks.case(2, 4)
def monitored_barrier_names_who_is_missing(rank, n):
    if ranks.VERSION < (2, 8):
        raise ranks.Skip("this PyTorch asks for gloo by name")
    dist.monitored_barrier()
    limit = datetime.timedelta(seconds=1)
    if rank == 0:
        raises(lambda: dist.monitored_barrier(timeout=limit), "Rank 1 failed to pass monitoredBarrier")
    elif rank > 1:
        raises(lambda: dist.monitored_barrier(timeout=limit), "rank", "Rank 1 failed")
    dist.barrier()
    if rank == 0:
        raises(lambda: dist.monitored_barrier(timeout=limit, wait_all_ranks=True), "Ranks " + ", ".join(map(str, range(1, n))))
    dist.barrier()


@ranks.case(2)
def the_end(rank, n):
    """Work under way is finished; afterwards every call says so."""
    group = dist.distributed_c10d._get_default_group()
    x = torch.ones(100000)
    works = [dist.all_reduce(x, async_op=True) for _ in range(5)]
    dist.destroy_process_group()
    assert all(w.is_completed() for w in works) or ranks.VERSION < (2, 0)
    if ranks.VERSION >= (2, 7):
        assert x[0] == 32
        raises(lambda: group.allreduce([x]).wait(), "shut down")


@ranks.case(2)
def groups_that_end_while_their_thread_drops_tensors(rank, n):
    """The group's thread is the last to hold what Python has let go, and needs the interpreter's lock to free it."""
    for _ in range(10):
        group = dist.new_group()
        for _ in range(20):
            dist.all_reduce(torch.ones(1000), group=group, async_op=True)
        dist.destroy_process_group(group)
        del group


@ranks.case(2, backend=None)
def a_rank_that_never_comes(rank, n):
    if rank == 1:
        return
    path = os.path.join(os.environ["TMPDIR_OF_CASE"], "store")
    raises(lambda: dist.init_process_group("hocket", init_method=f"file://{path}", rank=0, world_size=2, timeout=datetime.timedelta(seconds=1)),
           "without rank 1")


@ranks.case(2)
def abort_ends_the_others(rank, n):
    if ranks.VERSION < (2, 7):
        raise ranks.Skip("this PyTorch has no abort for other backends")
    dist.barrier()
    group = dist.distributed_c10d._get_default_group()
    if rank == 1:
        time.sleep(0.2)
        group.abort()
        raises(lambda: dist.all_reduce(torch.ones(3)), "abort")
    else:
        raises(lambda: dist.all_reduce(torch.ones(3)), "abort")


@ranks.case(1, backend=None)
def nothing_is_left(rank, n):
    """A job whose rank is killed in the middle of asynchronous work: all others end by themselves."""
    script = ("import os, signal, torch, torch.distributed as dist, hocket.torch\n"
              "dist.init_process_group('hocket')\n"
              "w = dist.all_reduce(torch.ones(10), async_op=True)\n"
              "w.wait()\n"
              "dist.irecv(torch.ones(3), (dist.get_rank() + 1) % 3)\n"  # never sent
              "if dist.get_rank() == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
              "dist.all_reduce(torch.ones(10))\n")
    procs = []
    port = 20000 + os.getpid() % 20000
    for r in range(3):
        env = dict(os.environ, RANK=str(r), WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                   PYTHONPATH=os.pathsep.join([p for p in sys.path if p]))
        procs.append(subprocess.Popen([sys.executable, "-c", script], env=env, stderr=subprocess.PIPE, text=True))
    texts = [p.communicate(timeout=ranks.SECONDS)[1] for p in procs]
    assert [p.returncode for p in procs] == [1, -9, 1], [p.returncode for p in procs]
    assert "rank 1 (" in texts[0] and "rank 1 (" in texts[2], texts


if __name__ == "__main__":
    ranks.main()
