"""Gradients made small on their way: the largest values with what was left out kept for later, and half precision."""

import copy

import torch
import torch.distributed as dist
from common import close, done, drawn, init
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP


class TopK:
    def __init__(self, share: float) -> None:
        self.share, self.left = share, {}


def topk_hook(state: TopK, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    flat = bucket.buffer()
    given = flat + state.left.get(bucket.index(), torch.zeros_like(flat))
    count = max(1, int(state.share * flat.numel()))
    index = given.abs().topk(count).indices
    values = given[index]
    state.left[bucket.index()] = given.index_fill(0, index, 0.0)
    ranks = dist.get_world_size()
    all_values = [torch.empty_like(values) for _ in range(ranks)]
    all_index = [torch.empty_like(index) for _ in range(ranks)]
    dist.all_gather(all_index, index)
    work = dist.all_gather(all_values, values, async_op=True)

    def joined(future):
        found = torch.zeros_like(flat)
        for where, what in zip(all_index, all_values, strict=True):
            found.index_add_(0, where, what, alpha=1 / ranks)
        return found

    return work.get_future().then(joined)


def trained(net: nn.Module, register=None, steps: int = 25, mine: slice = slice(None)) -> list[float]:
    net = copy.deepcopy(net)
    wrapped = net if register is None else DDP(net)
    if register is not None:
        register(wrapped)
    optimizer, losses = torch.optim.SGD(wrapped.parameters(), 0.1), []
    for step in range(steps):
        x = drawn(8 * ranks, 6, seed=step % 3)[mine]
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(wrapped(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        if register is not None:
            dist.all_reduce(total, op=dist.ReduceOp.SUM)
            total /= ranks
        losses.append(total)
    return torch.stack(losses)


rank, ranks = init()
torch.manual_seed(0)
net, mine = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)), slice(rank, None, ranks)
alone = trained(net)
close(trained(net, lambda ddp: ddp.register_comm_hook(TopK(1.0), topk_hook), mine=mine), alone, 1e-5, "all values")
some = trained(net, lambda ddp: ddp.register_comm_hook(TopK(0.2), topk_hook), mine=mine)
assert some[-1] < 0.5 * some[0]
close(trained(net, lambda ddp: ddp.register_comm_hook(None, default_hooks.fp16_compress_hook), mine=mine), alone, 5e-3)
done("compressed")
