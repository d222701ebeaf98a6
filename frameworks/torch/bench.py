#!/usr/bin/env python3
"""Times torch.distributed on hocket against gloo, in turn, on this machine.

    python3 bench.py [--ranks 2,4] [--sizes 1K,64K,1M,64M] [--what all_reduce,ddp] [--rounds 5]

Each rank has both backends at once, as two groups; a round times one and then the other at each size. Shown are the medians over the rounds of
the slowest rank's time. DDP: a step (forward, backward, all-reduce, SGD) of a perceptron of 10.5 million parameters, batch 32. One thread a rank.
"""
import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
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
        tensors = {b: torch.ones(size // 4) for b in BACKENDS}

        def make(b, tensors=tensors):
            return lambda: dist.all_reduce(tensors[b], group=groups[b])

        yield f"all_reduce {size}", {b: make(b) for b in BACKENDS}


def ddp_case(groups):
    steps = {}
    for b in BACKENDS:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048), torch.nn.ReLU(),
                                  torch.nn.Linear(2048, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10))
        ddp = torch.nn.parallel.DistributedDataParallel(net, process_group=groups[b])
        sgd = torch.optim.SGD(ddp.parameters(), lr=1e-3)
        x, y = torch.randn(32, 1024), torch.randint(0, 10, (32,))

        def step(ddp=ddp, sgd=sgd, x=x, y=y):
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(ddp(x), y).backward()
            sgd.step()

        steps[b] = step
    return "ddp step", steps


def rank_main(rank, ranks, path, args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=ranks)
    groups = {b: dist.new_group(backend=b) for b in BACKENDS}
    cases = []
    if "all_reduce" in args.what:
        cases += list(all_reduce_cases([size_of(s) for s in args.sizes.split(",")], groups))
    if "ddp" in args.what:
        cases.append(ddp_case(groups))
    for name, calls in cases:
        times = {b: [] for b in BACKENDS}
        for _ in range(4):
            for b in BACKENDS:
                calls[b]()
        for _ in range(args.rounds):
            for b in BACKENDS:
                times[b].append(timed(calls[b], groups[b], args.budget))
        if rank == 0:
            g, h = (statistics.median(times[b]) for b in BACKENDS)
            print(f"{ranks} ranks  {name:22s} gloo {g * 1e6:10.1f} us   hocket {h * 1e6:10.1f} us   {g / h:5.2f} x", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--sizes", default="1K,8K,64K,512K,4M,16M,64M")
    parser.add_argument("--what", default="all_reduce,ddp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=0.1, help="seconds for a size, backend and round")
    args = parser.parse_args()
    for ranks in (int(n) for n in args.ranks.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            mp.start_processes(rank_main, (ranks, os.path.join(folder, "store"), args), nprocs=ranks, start_method="spawn")


if __name__ == "__main__":
    main()
