"""Compiled modules whose gradients ranks average: as plain ones, on either side of DistributedDataParallel."""

import copy
import functools
from collections.abc import Callable

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group()
rank = dist.get_rank()


def compare(plain: Callable[[nn.Module], nn.Module], compiled: Callable[[nn.Module], nn.Module]) -> None:
    ts.manual_seed(0)
    model = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(8, 8), nn.GELU())), nn.LayerNorm(8))
    other = copy.deepcopy(model)
    runs = plain(model), compiled(other)
    for turn in range(6):
        ts.manual_seed(100 * turn + rank)
        x = ts.randn(5, 8)
        for run in runs:
            run.zero_grad()
            run(x).square().mean().backward()
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            assert p.grad.equal(q.grad), (rank, turn)


for find in (False, True):
    wrap = functools.partial(DDP, find_unused_parameters=find)
    compare(wrap, lambda m, wrap=wrap: wrap(ts.compile(m)))
    compare(wrap, lambda m, wrap=wrap: ts.compile(wrap(m)))
dist.destroy_process_group()
