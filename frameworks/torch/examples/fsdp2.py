"""Fully sharded training (FSDP2) on hocket. torchrun --nproc_per_node 2 fsdp2.py [--backend gloo]     PyTorch 2.7 or later"""
import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--backend", default="hocket")
parser.add_argument("--steps", type=int, default=20)
args = parser.parse_args()

torch.set_num_threads(1)
dist.init_process_group(args.backend)
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(*[nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True) for _ in range(4)], nn.Linear(128, 32))
mesh = torch.distributed.init_device_mesh("cpu", (ranks,))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
if args.backend == "hocket" and hasattr(model, "set_allocate_memory_from_process_group_for_comm"):
    for module in model.modules():  # buffers in memory that the ranks share: no copies
        if hasattr(module, "set_allocate_memory_from_process_group_for_comm"):
            module.set_allocate_memory_from_process_group_for_comm(True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
random = torch.Generator().manual_seed(rank)

start = time.perf_counter()
for step in range(args.steps):
    x = torch.randn(4, 32, 128, generator=random)
    loss = nn.functional.mse_loss(model(x), x[..., :32].cos())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
seconds = time.perf_counter() - start

mean = loss.detach().clone()
dist.all_reduce(mean)
if rank == 0:
    print(f"{ranks} ranks on {dist.get_backend()}: loss {mean.item() / ranks:.4f} after {args.steps} steps, {seconds / args.steps * 1e3:.1f} ms a step")
dist.destroy_process_group()
