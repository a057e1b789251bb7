"""Tensor parallelism along one dim of a mesh and data parallelism along the other follow one process: by DTensors on
both, and by DistributedDataParallel around a parallelized module. Written for PyTorch, and run as it is."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

BATCH, STEPS = 16, 50


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.norm, self.two, self.head = nn.Linear(8, 24), nn.LayerNorm(24), nn.Linear(24, 8), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.two(F.gelu(self.norm(self.one(x)))))


class Simple(nn.Module):
    """Without the normalisation, which would need the whole of what is cut."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.head = nn.Linear(8, 24), nn.Linear(24, 8), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.two(F.gelu(self.one(x))))


def batches():
    generator = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        yield torch.randn(BATCH, 8, generator=generator), torch.randint(0, 5, (BATCH,), generator=generator)


def trained(model, prepare):
    """The losses; the model is trained."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    found = []
    for x, y in batches():
        x, y = prepare(x), prepare(y)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return found


def cut(name, module, mesh):
    """Columns of the first layer and rows of the second along tp; copies along dp."""
    placed = {"one": {"weight": Shard(0), "bias": Shard(0)}, "two": {"weight": Shard(1), "bias": Replicate()}}
    for each, placement in placed.get(name, {}).items():
        whole = getattr(module, each)
        module.register_parameter(each, nn.Parameter(distribute_tensor(whole, mesh, [Replicate(), placement])))


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    data = mesh.get_local_rank("dp")

    alone = Net()
    trained(alone, lambda t: t)
    model = distribute_module(Net(), mesh, cut)
    trained(model, lambda t: distribute_tensor(t, mesh, [Shard(0), Replicate()]))
    for (name, p), q in zip(model.named_parameters(), alone.parameters(), strict=True):
        assert (p.full_tensor() - q).abs().max().item() < 1e-5, name

    expected = torch.stack(trained(Simple(), lambda t: t))
    model = parallelize_module(Simple(), mesh["tp"], {"one": ColwiseParallel(), "two": RowwiseParallel()})
    assert model.one.weight.to_local().shape == (12, 8) and model.two.weight.to_local().shape == (8, 12)
    model = DistributedDataParallel(model, device_mesh=mesh["dp"])
    found = torch.stack(trained(model, lambda t: t.chunk(2)[data]))
    dist.all_reduce(found, group=mesh.get_group("dp"))
    assert (found / 2 - expected).abs().max().item() < 1e-5, (found / 2, expected)
    if dist.get_rank() == 0:
        print("meshes follow one process")
    dist.destroy_process_group()


main()
