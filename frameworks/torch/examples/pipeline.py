"""A pipeline (torch.distributed.pipelining) on hocket: a stage a rank. torchrun --nproc_per_node 2 pipeline.py [--backend gloo]   PyTorch 2.5 or later"""
import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--backend", default="hocket")
parser.add_argument("--steps", type=int, default=20)
args = parser.parse_args()

torch.set_num_threads(1)
dist.init_process_group(args.backend)
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
width, micro_batches = 128, 2 * ranks
layers = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
stage = PipelineStage(layers, rank, ranks, torch.device("cpu"))
schedule = Schedule1F1B(stage, micro_batches, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-3)
random = torch.Generator().manual_seed(0)  # the same on all ranks: the first has the inputs, the last the targets

start = time.perf_counter()
losses = []
for step in range(args.steps):
    x = torch.randn(8 * micro_batches, width, generator=random)
    losses = []
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(x)
    elif rank == ranks - 1:
        schedule.step(target=x.sin(), losses=losses)
    else:
        schedule.step()
    optimizer.step()
seconds = time.perf_counter() - start

if rank == ranks - 1:
    print(f"{ranks} stages on {dist.get_backend()}: loss {sum(loss.item() for loss in losses) / micro_batches:.4f} after {args.steps} steps, "
          f"{seconds / args.steps * 1e3:.1f} ms a step")
dist.destroy_process_group()
