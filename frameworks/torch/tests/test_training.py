"""Models train with the same losses as on gloo: DistributedDataParallel, FSDP2, tensor parallel, pipelines."""
import torch
import torch.distributed as dist
from torch import nn

import ranks

STEPS = 6


def model(width=32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 4))


def data(rank, step):
    g = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 16, generator=g), torch.randn(8, 4, generator=g)


def train(net, rank, optimizer=None):
    optimizer = optimizer or torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        x, y = data(rank, step)
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def close(a, b, what):
    assert torch.allclose(torch.tensor(a), torch.tensor(b), rtol=1e-5, atol=1e-6), f"{what}: {a} on hocket, {b} on gloo"


@ranks.case(2, 4)
def ddp(rank, n):
    losses = {}
    for group in (dist.group.WORLD, ranks.gloo()):
        for view in (False, True):
            net = nn.parallel.DistributedDataParallel(model(), process_group=group, bucket_cap_mb=0.002, gradient_as_bucket_view=view)
            losses[group is ranks.gloo(), view] = train(net, rank)
    for view in (False, True):
        close(losses[False, view], losses[True, view], f"DDP, gradient_as_bucket_view={view}")


@ranks.case(2)
def ddp_with_sparse_and_unused_parameters(rank, n):
    def net():
        torch.manual_seed(0)
        return nn.ModuleDict({"e": nn.Embedding(50, 8, sparse=True), "l": nn.Linear(8, 1), "unused": nn.Linear(3, 3)})

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = net()

        def forward(self, i):
            return self.m["l"](self.m["e"](i)).sum()

    losses = []
    for group in (dist.group.WORLD, ranks.gloo()):
        ddp_net = nn.parallel.DistributedDataParallel(Net(), process_group=group, find_unused_parameters=True)
        sgd = torch.optim.SGD(ddp_net.parameters(), lr=0.1)
        losses.append([])
        for step in range(4):
            sgd.zero_grad()
            loss = ddp_net(torch.tensor([rank, step, 7]))
            loss.backward()
            sgd.step()
            losses[-1].append(loss.item())
    close(*losses, "sparse DDP")


@ranks.case(2, 4)
def fsdp2(rank, n):
    if ranks.VERSION < (2, 7):
        raise ranks.Skip("fully_shard works on CPUs since 2.7")
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    losses = []
    for group in (dist.group.WORLD, ranks.gloo()):
        net = model()
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in net:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        losses.append(train(net, rank))
    # fully_shard averages gradients by a division before or after the sum, as the backend can
    close(*losses, "FSDP2")


@ranks.case(2, 4)
def fsdp2_allocates_from_hocket(rank, n):
    if ranks.VERSION < (2, 9):
        raise ranks.Skip("fully_shard takes memory from the backend since 2.9")
    from torch.distributed.fsdp import fully_shard
    losses = []
    for shared in (False, True):
        net = model()
        fully_shard(net)
        if shared:
            net.set_allocate_memory_from_process_group_for_comm(True)
        losses.append(train(net, rank))
    close(*losses, "FSDP2 in hocket's memory")


@ranks.case(2, 4)
def tensor_parallel(rank, n):
    if ranks.VERSION < (2, 3):
        raise ranks.Skip("DTensor's tensor parallel is public since 2.3")
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    losses = []
    for group in (dist.group.WORLD, ranks.gloo()):
        mesh = DeviceMesh.from_group(group, "cpu")
        net = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        losses.append(train(net, 0, torch.optim.SGD(net.parameters(), lr=0.1)))
    single = train(model(), 0, torch.optim.SGD(model().parameters(), lr=0.1))
    close(*losses, "tensor parallel")
    close(losses[0][:1], single[:1], "tensor parallel, step 0, against one process")


@ranks.case(2, 4)
def pipeline(rank, n):
    if ranks.VERSION < (2, 5):
        raise ranks.Skip("torch.distributed.pipelining came with 2.5")
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    for schedule in (ScheduleGPipe, Schedule1F1B):
        losses = []
        for group in (dist.group.WORLD, ranks.gloo()):
            torch.manual_seed(0)
            layers = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(n)]
            net = layers[rank]
            x = torch.randn(16, 16, generator=torch.Generator().manual_seed(1))
            y = torch.randn(16, 16, generator=torch.Generator().manual_seed(2))
            stage = PipelineStage(net, rank, n, torch.device("cpu"), group=group)
            run = schedule(stage, 8, loss_fn=nn.functional.mse_loss)
            sgd = torch.optim.SGD(net.parameters(), lr=0.5)
            losses.append([])
            for _ in range(4):
                found = []
                sgd.zero_grad()
                if rank == 0:
                    run.step(x)
                elif rank == n - 1:
                    run.step(target=y, losses=found)
                else:
                    run.step()
                sgd.step()
                losses[-1].append(sum(l.item() for l in found))
        close(*losses, schedule.__name__)
        assert rank != n - 1 or losses[0][-1] < losses[0][0], losses


@ranks.case(2)
def checkpoints_and_zero_optimizer(rank, n):
    from torch.distributed.optim import ZeroRedundancyOptimizer
    net = nn.parallel.DistributedDataParallel(model())
    first = train(net, rank, ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=1e-2))
    net = nn.parallel.DistributedDataParallel(model(), process_group=ranks.gloo())
    close(first, train(net, rank, torch.optim.Adam(net.parameters(), lr=1e-2)), "ZeroRedundancyOptimizer")


if __name__ == "__main__":
    ranks.main()
