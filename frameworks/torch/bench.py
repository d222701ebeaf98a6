#!/usr/bin/env python3
"""Times torch.distributed on hocket against gloo, in turn, on this machine.

    python3 bench.py [--ranks 2,4] [--what all_reduce,fresh,async,others,ddp] [--sizes 1K,64K,1M,64M] [--rounds 5]
    python3 bench.py --what link [--rate 1gbit]

Each rank has both backends at once, as two groups; a round times one and then the other. Shown are the medians over the rounds of the
slowest rank's time. One thread a rank.

    all_reduce   the same tensor again and again, as gradients are
    fresh        a tensor that is new each time, never seen before
    async        all_reduce(async_op=True) and wait()
    others       the other collectives and a message there and back
    ddp          a step (forward, backward, all-reduce, SGD) of a perceptron of 10.5 million parameters, batch 32
    link         the same step by ranks on two hosts that a link joins: network namespaces whose cable is held to a rate (needs root, ip and
                 tc); with hocket's codecs as communication hooks as well
"""
import argparse
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

import hocket.torch  # noqa: E402,F401

BACKENDS = ("gloo", "hocket")


def size_of(text):
    factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1].upper())
    return int(text[:-1]) * factor if factor else int(text)


def slowest(seconds, group):
    t = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(t, dist.ReduceOp.MAX, group=group)
    return t.item()


def timed(call, group, budget):
    """Seconds of one call: as many as fit the budget, at least 3."""
    dist.barrier(group)
    start = time.perf_counter()
    call()
    once = slowest(time.perf_counter() - start, group)
    count = max(3, min(2000, int(budget / max(once, 1e-6))))
    dist.barrier(group)
    start = time.perf_counter()
    for _ in range(count):
        call()
    return slowest((time.perf_counter() - start) / count, group)


def all_reduce_cases(sizes, groups):
    for size in sizes:
        tensors = {b: torch.zeros(size // 4) for b in BACKENDS}
        yield f"all_reduce {size}", {b: lambda b=b, t=tensors: dist.all_reduce(t[b], group=groups[b]) for b in BACKENDS}


def fresh_cases(sizes, groups):
    for size in sizes:
        yield f"all_reduce, fresh {size}", {b: lambda b=b, n=size // 4: dist.all_reduce(torch.zeros(n), group=groups[b]) for b in BACKENDS}


def async_cases(sizes, groups):
    for size in sizes:
        tensors = {b: torch.zeros(size // 4) for b in BACKENDS}
        yield f"all_reduce, async {size}", {b: lambda b=b, t=tensors: dist.all_reduce(t[b], group=groups[b], async_op=True).wait() for b in BACKENDS}


def other_cases(sizes, groups):
    """Sizes are those of the larger side."""
    rank, n = dist.get_rank(), dist.get_world_size()

    def there_and_back(x, group):
        if rank == 0:
            dist.send(x, 1, group=group)
            dist.recv(x, 1, group=group)
        elif rank == 1:
            dist.recv(x, 0, group=group)
            dist.send(x, 0, group=group)

    calls = {"broadcast": lambda whole, part, list_, group: dist.broadcast(whole, 0, group=group),
             "all_gather": lambda whole, part, list_, group: dist.all_gather(list_, part, group=group),
             "all_gather_into_tensor": lambda whole, part, list_, group: dist.all_gather_into_tensor(whole, part, group=group),
             "reduce_scatter_tensor": lambda whole, part, list_, group: dist.reduce_scatter_tensor(part, whole, group=group),
             "all_to_all_single": lambda whole, part, list_, group: dist.all_to_all_single(whole, whole.clone(), group=group),
             "there and back": lambda whole, part, list_, group: there_and_back(whole, group)}
    for name, call in calls.items():
        for size in sizes:
            count = size // 4 // n * n
            data = {b: (torch.zeros(count), torch.zeros(count // n), [torch.zeros(count // n) for _ in range(n)]) for b in BACKENDS}
            yield f"{name} {size}", {b: lambda b=b, c=call, d=data: c(*d[b], groups[b]) for b in BACKENDS}


def ddp_step(group, hook=None):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048), torch.nn.ReLU(),
                              torch.nn.Linear(2048, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10))
    ddp = torch.nn.parallel.DistributedDataParallel(net, process_group=group)
    if hook:
        ddp.register_comm_hook(hocket.torch.HookState(group=group), hook)
    sgd = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    x, y = torch.randn(32, 1024), torch.randint(0, 10, (32,))

    def step():
        sgd.zero_grad()
        torch.nn.functional.cross_entropy(ddp(x), y).backward()
        sgd.step()

    return step


def ddp_cases(_sizes, groups):
    yield "ddp step", {b: ddp_step(groups[b]) for b in BACKENDS}


def link_cases(_sizes, groups):
    hooks = {"int8": hocket.torch.int8_hook, "onebit": hocket.torch.onebit_hook}
    yield "ddp step", {**{b: ddp_step(groups[b]) for b in BACKENDS}, **{f"hocket {h}": ddp_step(groups["hocket"], hook) for h, hook in hooks.items()}}


CASES = {"all_reduce": all_reduce_cases, "fresh": fresh_cases, "async": async_cases, "others": other_cases, "ddp": ddp_cases, "link": link_cases}


def rank_main(rank, ranks, path, args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=ranks)
    groups = {b: dist.new_group(backend=b) for b in BACKENDS}
    sizes = [size_of(s) for s in args.sizes.split(",")]
    for name, calls in (case for what in args.what.split(",") for case in CASES[what](sizes, groups)):
        times = {label: [] for label in calls}
        for _ in range(4):
            for call in calls.values():
                call()
        for _ in range(args.rounds):
            for label, call in calls.items():
                times[label].append(timed(call, groups[label.split()[0]], args.budget))
        if rank == 0:
            gloo = statistics.median(times["gloo"])
            text = "   ".join(f"{label} {t * 1e6:10.1f} us {gloo / t:6.2f} x" for label, t in ((k, statistics.median(v)) for k, v in times.items()))
            print(f"{ranks} ranks  {name:30s} {text}", flush=True)
    dist.destroy_process_group()


def across_a_link(ranks, path, args):
    """Half of the ranks on each of two hosts."""
    sys.path.insert(0, str(HERE.parent.parent / "bench"))
    import versus_network as v
    network = v.Network(2, args.rate)
    try:
        procs = []
        for rank in range(ranks):
            command = [sys.executable, str(HERE / "bench.py"), *sys.argv[1:], "--store", path, "--rank", str(rank), "--ranks", str(ranks)]
            env = dict(network.environment(False, os.path.dirname(path)), GLOO_SOCKET_IFNAME=v.PORT)
            procs.append(subprocess.Popen([v.SHELL, network.address(rank * 2 // ranks), shlex.join(command)], env=env))
        if any([p.wait() for p in procs]):
            sys.exit("bench.py: a rank failed")
    finally:
        network.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--sizes", default="1K,8K,64K,512K,4M,16M,64M")
    parser.add_argument("--what", default="all_reduce,ddp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=0.1, help="seconds for a size, backend and round")
    parser.add_argument("--rate", default="1gbit", help="of the link, as tc(8) takes it")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        return rank_main(args.rank, int(args.ranks), args.store, args)
    for ranks in (int(n) for n in args.ranks.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store")
            if args.what == "link":
                across_a_link(ranks, path, args)
            else:
                mp.start_processes(rank_main, (ranks, path, args), nprocs=ranks, start_method="spawn")


if __name__ == "__main__":
    main()
