"""DistributedDataParallel on hocket. torchrun --nproc_per_node 2 ddp.py [--backend gloo] [--hook int8|onebit|powersgd]"""
import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hocket.torch  # PyTorch before 2.5 needs this line; for the hooks all do

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--backend", default="hocket")
parser.add_argument("--hook", choices=["int8", "onebit", "powersgd"])
parser.add_argument("--steps", type=int, default=20)
args = parser.parse_args()

torch.set_num_threads(1)
dist.init_process_group(args.backend)
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 16)))
if args.hook:
    model.register_comm_hook(hocket.torch.HookState(), getattr(hocket.torch, args.hook + "_hook"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
random = torch.Generator().manual_seed(rank)  # each rank has its own data

start = time.perf_counter()
for step in range(args.steps):
    x = torch.randn(32, 256, generator=random)
    loss = nn.functional.mse_loss(model(x), x[:, :16].sin())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
seconds = time.perf_counter() - start

mean = loss.detach().clone()
dist.all_reduce(mean, dist.ReduceOp.SUM)
if rank == 0:
    print(f"{ranks} ranks on {dist.get_backend()}: loss {mean.item() / ranks:.4f} after {args.steps} steps, {seconds / args.steps * 1e3:.1f} ms a step")
dist.destroy_process_group()
