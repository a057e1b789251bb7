"""mp.spawn with DistributedDataParallel, results through a queue; all ranks come to what one process does."""

import os
import socket
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import close, drawn
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank: int, world_size: int, port: str) -> None:
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def made() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5))


def demo_basic(rank: int, world_size: int, port: str, results) -> None:
    setup(rank, world_size, port)
    torch.set_num_threads(1)
    ddp = DDP(made())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for step in range(10):
        optimizer.zero_grad()
        nn.MSELoss()(ddp(drawn(20, 10, seed=step)[rank::world_size]), torch.ones(20 // world_size, 5)).backward()
        optimizer.step()
    results.put((rank, [p.detach().tolist() for p in ddp.module.parameters()]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = str(probe.getsockname()[1])
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(demo_basic, args=(ranks, port, results), nprocs=ranks, join=True)
    alone = made()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.05)
    for step in range(10):
        optimizer.zero_grad()
        nn.MSELoss()(alone(drawn(20, 10, seed=step)), torch.ones(20, 5)).backward()
        optimizer.step()
    for _ in range(ranks):
        rank, found = results.get()
        for mine, wanted in zip(found, alone.parameters(), strict=True):
            close(torch.tensor(mine), wanted, 1e-5, rank)
    print("PASS spawned")
