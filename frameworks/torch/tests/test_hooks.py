"""The codecs as communication hooks: they converge, send fewer bytes, are the same on all ranks, and go on from a saved state."""
import copy

import torch
import torch.distributed as dist
from torch import nn

import ranks  # first: it finds hocket.torch in the tree
import hocket.torch

STEPS = 60
HOOKS = {"int8": (hocket.torch.int8_hook, 3.5), "onebit": (hocket.torch.onebit_hook, 15), "powersgd": (hocket.torch.powersgd_hook, 2)}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 8))


def batch(rank, step):
    g = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(32, 64, generator=g)
    return x, torch.sin(x[:, :8] * 2)


def train(ddp, sgd, rank, first, last):
    loss = None
    for step in range(first, last):
        x, y = batch(rank, step)
        loss = nn.functional.mse_loss(ddp(x), y)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    return loss.item()


def make(hook=None, state=None, bucket_mb=25):
    ddp = nn.parallel.DistributedDataParallel(net(), bucket_cap_mb=bucket_mb)
    if hook:
        ddp.register_comm_hook(state, hook)
    return ddp, torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)


@ranks.case(2, 4)
def hooks_converge(rank, n):
    start = nn.functional.mse_loss(net()(batch(rank, 0)[0]), batch(rank, 0)[1]).item()
    plain = train(*make(), rank, 0, STEPS)
    assert plain < 0.9 * start
    for name, (hook, ratio) in HOOKS.items():
        state = hocket.torch.HookState()
        ddp, sgd = make(hook, state)
        loss = train(ddp, sgd, rank, 0, STEPS)
        if rank == 0:
            print(f"     {name}: loss {loss:.4f}, without {plain:.4f}, before {start:.4f}; ratio {state.stats()[0]['ratio']:.1f}")
        assert loss < plain + 0.15 * (start - plain), f"{name}: {loss}, without {plain}, before {start}"
        assert state.stats()[0]["ratio"] > ratio and state.stats()[0]["calls"] >= STEPS - 3, state.stats()
        flat = torch.cat([p.detach().flatten() for p in ddp.parameters()])
        least = flat.clone()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        assert torch.equal(least, flat), f"{name}: the ranks' weights differ"


def save_and_go_on(hook, bucket_mb, rank):
    """What the same steps come to without and with a save, into a new DDP: its buckets lie in another way in its first step."""
    state = hocket.torch.HookState(seed=5)
    ddp, sgd = make(hook, state, bucket_mb)
    train(ddp, sgd, rank, 0, 10)
    saved = copy.deepcopy({"hook": state.state_dict(), "net": ddp.module.state_dict(), "sgd": sgd.state_dict()})
    whole = train(ddp, sgd, rank, 10, 16)
    weights = torch.cat([p.detach().flatten() for p in ddp.parameters()])
    again = hocket.torch.HookState()
    again.load_state_dict(saved["hook"])
    ddp, sgd = make(hook, again, bucket_mb)
    ddp.module.load_state_dict(saved["net"])
    sgd.load_state_dict(saved["sgd"])
    resumed = train(ddp, sgd, rank, 10, 16)
    return len(saved["hook"]["buckets"]), whole, resumed, torch.equal(weights, torch.cat([p.detach().flatten() for p in ddp.parameters()]))


@ranks.case(2)
def a_saved_state_goes_on_to_the_bit(rank, n):
    for name, (hook, _) in HOOKS.items():
        for bucket_mb, least in ((25, 1), (0.02, 2)):
            buckets, whole, resumed, same = save_and_go_on(hook, bucket_mb, rank)
            assert buckets >= least or ranks.VERSION < (2, 0), buckets  # old versions have a first bucket of 1 MiB at least
            assert resumed == whole and same, f"{name}, {buckets} buckets: {resumed} after loading, {whole} without"


@ranks.case(2)
def a_state_of_another_model_is_refused(rank, n):
    state = hocket.torch.HookState()
    train(*make(hocket.torch.int8_hook, state), rank, 0, 4)
    again = hocket.torch.HookState()
    again.load_state_dict(state.state_dict())
    ddp = nn.parallel.DistributedDataParallel(nn.Linear(64, 8))
    ddp.register_comm_hook(again, hocket.torch.int8_hook)
    try:
        ddp(torch.ones(3, 64)).sum().backward()
        raise AssertionError("a state of another model was taken")
    except (RuntimeError, ValueError) as error:
        assert "parameters this model does not have" in str(error), error


@ranks.case(2)
def a_nan_is_named(rank, n):
    state = hocket.torch.HookState()
    ddp, sgd = make(hocket.torch.int8_hook, state)
    train(ddp, sgd, rank, 0, 4)
    x, y = batch(rank, 5)
    if rank == 1:
        x[0, 0] = float("nan")
    nn.functional.mse_loss(ddp(x), y).backward()
    assert "rank 1" in state.fault(), state.fault()
    assert all(bool(torch.isnan(p.grad).any()) for p in ddp.parameters())


if __name__ == "__main__":
    ranks.main()
