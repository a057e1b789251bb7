"""An optimizer divided by hand: reduce_scatter of flat gradients, a step of each part, all_gather of the values."""

import copy

import torch
import torch.distributed as dist
from common import close, done, drawn, init
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class Sharded:
    def __init__(self, parameters, **options) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]
        flat = _flatten_dense_tensors([p.data for p in self.parameters])
        self.padding = -flat.numel() % ranks
        self.flat = torch.cat([flat, flat.new_zeros(self.padding)])
        for p, part in zip(
            self.parameters, _unflatten_dense_tensors(self.flat[: flat.numel()], self.parameters), strict=True
        ):
            p.data = part
        self.part = nn.Parameter(self.flat.chunk(ranks)[rank].clone())
        self.optimizer = torch.optim.AdamW([self.part], **options)

    def step(self, limit: float) -> torch.Tensor:
        gradients = _flatten_dense_tensors([p.grad for p in self.parameters])
        gradients = torch.cat([gradients, gradients.new_zeros(self.padding)])
        self.part.grad = torch.empty_like(self.part)
        dist.reduce_scatter_tensor(self.part.grad, gradients, op=dist.ReduceOp.SUM)
        self.part.grad /= ranks
        norm = self.part.grad.square().sum()
        dist.all_reduce(norm)
        norm = norm.sqrt()
        self.part.grad *= (limit / (norm + 1e-6)).clamp(max=1.0)
        self.optimizer.step()
        dist.all_gather_into_tensor(self.flat, self.part.data)
        for p, part in zip(
            self.parameters, _unflatten_dense_tensors(self.flat[: self.flat.numel()], self.parameters), strict=True
        ):
            p.data = part
            p.grad = None
        return norm


rank, ranks = init()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(7, 13), nn.GELU(), nn.LayerNorm(13), nn.Linear(13, 3))
alone = copy.deepcopy(model)
mine, other = Sharded(model.parameters(), lr=1e-2), torch.optim.AdamW(alone.parameters(), lr=1e-2)
for step in range(30):
    x = drawn(6 * ranks, 7, seed=step)
    model(x[rank::ranks]).square().mean().backward()
    other.zero_grad()
    alone(x).square().mean().backward()
    norm = nn.utils.clip_grad_norm_(alone.parameters(), 0.2)
    close(mine.step(0.2), norm, 1e-5, step)
    other.step()
for found, wanted in zip(model.parameters(), alone.parameters(), strict=True):
    close(found, wanted, 1e-4)
done("sharded_adam")
