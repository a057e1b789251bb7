"""Prints, as JSON, how the results of operators lie for every placement of what they are given, on a rank of four whose
others are not there. Written for PyTorch, and run as it is by both."""

import itertools
import json
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, init_device_mesh

SIZES = (8, 8, 16)
ONE = {
    "mul2": lambda x: x * 2, "add2": lambda x: x + 2, "relu": F.relu, "gelu": F.gelu, "sum": lambda x: x.sum(),
    "sum0": lambda x: x.sum(0), "mean": lambda x: x.mean(), "mean1": lambda x: x.mean(1), "max": lambda x: x.max(),
    "amax1": lambda x: x.amax(1), "softmax": lambda x: x.softmax(-1), "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(1, 2, 0), "flatten01": lambda x: x.flatten(0, 1), "flatten": lambda x: x.flatten(),
    "view": lambda x: x.view(8, 8, 4, 4), "unsqueeze": lambda x: x.unsqueeze(1), "select": lambda x: x.select(0, 1),
    "slice": lambda x: x[:, 1:3], "split": lambda x: x.split(4, 2)[0], "cat": lambda x: torch.cat([x, x], 1),
    "stack": lambda x: torch.stack([x, x]), "expand": lambda x: x.unsqueeze(0).expand(3, 8, 8, 16), "neg": lambda x: -x,
    "clone": lambda x: x.clone(), "zeros_like": torch.zeros_like, "norm": lambda x: torch.linalg.vector_norm(x),
    "to": lambda x: x.to(torch.float64), "tril": lambda x: x.tril(), "var": lambda x: x.var(1),
    "cumsum": lambda x: x.cumsum(1), "layer_norm": lambda x: F.layer_norm(x, (16,)),
}  # fmt: skip
TWO = {
    "add": lambda x, y: x + y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y, "mm": lambda x, y: x @ y,
    "linear": F.linear, "addmm": lambda x, y: torch.addmm(x, x, y),
}  # fmt: skip


def placed(shape, placement, mesh):
    local = [n // mesh.size() if placement.is_shard(d) else n for d, n in enumerate(shape)]
    return DTensor.from_local(torch.randn(local), mesh, [placement])


def main():
    warnings.simplefilter("ignore")
    try:  # PyTorch's own needs a store of its own
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    except ImportError:
        dist.init_process_group("fake", rank=0, world_size=4)
    mesh = init_device_mesh("cpu", (4,))
    kinds = [Replicate(), Partial(), Shard(0), Shard(1), Shard(2)]
    found = {}
    for name, function in ONE.items():
        for p in kinds:
            found[f"{name} {p}"] = str(function(placed(SIZES, p, mesh)).placements[0])
    for name, function in TWO.items():
        for p, q in itertools.product(kinds[:4], repeat=2):
            found[f"{name} {p} {q}"] = str(function(placed((8, 8), p, mesh), placed((8, 8), q, mesh)).placements[0])
    print(json.dumps(found))


main()
