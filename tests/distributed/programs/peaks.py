"""The most memory that a rank's training holds: of real ranks, or, alone, as simulated: ``peaks.py KIND RANKS``."""

import os
import sys

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed.fsdp import FullyShardedDataParallel, fully_shard
from tesserack.distributed.fsdp.wrap import ModuleWrapPolicy
from tesserack.distributed.optim import ZeroRedundancyOptimizer
from tesserack.distributed.simulation import Cluster, Link, simulate
from tesserack.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WIDTH = 128
CLUSTER = Cluster(Link(3e-6, 300e9), Link(10e-6, 25e9), per_node=8)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def train(kind: str) -> None:
    model: nn.Module = nn.Sequential(*[Block() for _ in range(4)])
    if kind in ("ddp", "zero"):
        model = nn.parallel.DistributedDataParallel(model)
    elif kind == "tensor":
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        for block in model:
            parallelize_module(block, mesh, plan)
    elif kind == "fsdp":
        model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
    else:
        for block in model:
            fully_shard(block)
        fully_shard(model)
    if kind == "zero":
        optimizer = ZeroRedundancyOptimizer(model.parameters(), ts.optim.AdamW)
    else:
        optimizer = ts.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(ts.ones(32, WIDTH)).pow(2).mean().backward()
        optimizer.step()


if __name__ == "__main__":
    kind, ranks = sys.argv[1], int(sys.argv[2])
    if "RANK" not in os.environ:
        with simulate(CLUSTER, 2 * ranks):  # another one before: what it leaves is not this one's
            train(kind)
        with simulate(CLUSTER, ranks) as report:
            train(kind)
        print(report.peak_memory)
    else:
        dist.init_process_group()
        before = ts.memory_stats("cpu")["allocated"]
        ts.reset_peak_memory_stats("cpu")
        train(kind)
        peak = ts.tensor(ts.memory_stats("cpu")["allocated_peak"] - before)
        dist.all_reduce(peak, dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            print(peak.item())
        dist.destroy_process_group()
