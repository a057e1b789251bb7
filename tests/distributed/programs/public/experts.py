"""Experts on ranks of their own: tokens go to them by all_to_all with gradients, and come back in order."""

import torch
import torch.distributed as dist
from common import close, done, drawn, init
from torch import nn


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, taken, given):
        ctx.splits = taken, given
        found = tensor.new_empty(sum(taken), *tensor.shape[1:])
        dist.all_to_all_single(found, tensor.contiguous(), taken, given)
        return found

    @staticmethod
    def backward(ctx, gradient):
        taken, given = ctx.splits
        found = gradient.new_empty(sum(given), *gradient.shape[1:])
        dist.all_to_all_single(found, gradient.contiguous(), given, taken)
        return found, None, None


def expert(number: int) -> nn.Module:
    torch.manual_seed(100 + number)
    return nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8))


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router, self.expert = nn.Linear(8, ranks, bias=False), expert(rank)

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).max(-1)
        order = chosen.argsort(stable=True)
        given = torch.bincount(chosen, minlength=ranks)
        taken = torch.empty_like(given)
        dist.all_to_all_single(taken, given)
        there = AllToAll.apply(x[order], taken.tolist(), given.tolist())
        back = AllToAll.apply(self.expert(there), given.tolist(), taken.tolist())
        return torch.zeros_like(x).index_copy(0, order, back) * weights[:, None]


rank, ranks = init()
torch.manual_seed(0)
model = Experts()
torch.manual_seed(0)
router = nn.Linear(8, ranks, bias=False)
with torch.no_grad():
    router.weight.copy_(drawn(ranks, 8, seed=5))
    model.router.weight.copy_(router.weight)
every = [expert(k) for k in range(ranks)]
tokens = [drawn(7 + k, 8, seed=k) for k in range(ranks)]
mine = tokens[rank].clone().requires_grad_()
out = model(mine)
out.square().sum().backward()
whole = torch.cat(tokens).requires_grad_()
weights, chosen = router(whole).softmax(-1).max(-1)
wanted = torch.stack([every[int(k)](row) for k, row in zip(chosen, whole, strict=True)]) * weights[:, None]
wanted.square().sum().backward()
begin = sum(len(t) for t in tokens[:rank])
close(out, wanted[begin : begin + len(mine)], 1e-5, "output")
close(mine.grad, whole.grad[begin : begin + len(mine)], 1e-5, "gradient of tokens")
for found, right in zip(model.expert.parameters(), every[rank].parameters(), strict=True):
    close(
        torch.zeros_like(right) if found.grad is None else found.grad,
        torch.zeros_like(right) if right.grad is None else right.grad,
        1e-5,
        "gradient of experts",
    )
dist.all_reduce(model.router.weight.grad)
close(model.router.weight.grad, router.weight.grad, 1e-5, "gradient of the router")
done("experts")
