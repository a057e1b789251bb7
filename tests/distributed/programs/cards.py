"""Models on a card, divided over ranks, follow one process on the cpu. ``cards.py DEVICE``, on each rank."""

import sys

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed.fsdp import CPUOffload, CPUOffloadPolicy, fully_shard
from tesserack.distributed.fsdp import FullyShardedDataParallel as FSDP


def net() -> nn.Module:
    ts.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def trained(model: nn.Module, x: ts.Tensor, y: ts.Tensor) -> nn.Module:
    optimizer = ts.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(10):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
    return model


def main() -> None:
    dist.init_process_group()
    n, me, device = dist.get_world_size(), dist.get_rank(), sys.argv[1]
    if device == "cuda":
        ts.cuda.set_device(me)
    ts.manual_seed(1)
    x, y = ts.randn(8, 8), ts.randn(8, 2)
    expected = trained(net(), x, y)(x)
    mesh = dist.init_device_mesh(device, (n,))
    for offloads in (False, True):
        shared = net().to(device)
        options = {"offload_policy": CPUOffloadPolicy()} if offloads else {}
        for layer in (shared[0], shared[2]):
            fully_shard(layer, mesh=mesh, **options)
        wrapped = FSDP(net().to(device), cpu_offload=CPUOffload(offloads))
        for model in (fully_shard(shared, mesh=mesh, **options), wrapped):
            trained(model, x[me::n].to(device), y[me::n].to(device))
            assert {p.device.type for p in model.parameters()} == {"cpu" if offloads else device}
            assert (model(x.to(device)).cpu() - expected).abs().max().item() < 1e-4
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
