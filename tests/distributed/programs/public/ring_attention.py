"""Attention over a sequence that is divided: keys and values go round while each rank adds what it sees."""

import torch
import torch.distributed as dist
from common import close, done, drawn, init
from torch.nn import functional as F


class Ring:
    def __init__(self, group=None) -> None:
        self.group, self.requests = group, None
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.to, self.of = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks

    def turn(self, *tensors):
        found = [torch.empty_like(tensor) for tensor in tensors]
        sends = [dist.P2POp(dist.isend, tensor.contiguous(), self.to, self.group) for tensor in tensors]
        takes = [dist.P2POp(dist.irecv, tensor, self.of, self.group) for tensor in found]
        order = sends + takes if self.rank % 2 == 0 else takes + sends
        self.requests = dist.batch_isend_irecv(order)
        return found

    def wait(self) -> None:
        for request in self.requests:
            request.wait()


def part(q, k, v, causal: bool):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    total = scores.logsumexp(-1, keepdim=True)
    return (scores - total).exp() @ v, total


def ring_attention(q, k, v, causal: bool):
    ring, out, total = Ring(), None, None
    for step in range(ring.ranks):
        last = step + 1 == ring.ranks
        if not last:
            next_k, next_v = ring.turn(k, v)
        if not causal or step <= ring.rank:
            more, weight = part(q, k, v, causal and step == 0)
            if out is None:
                out, total = more, weight
            else:
                out = out - torch.sigmoid(weight - total) * (out - more)
                total = total - F.logsigmoid(total - weight)
        if not last:
            ring.wait()
            k, v = next_k, next_v
    return out


rank, ranks = init()
for causal in (False, True):
    q, k, v = (drawn(2, 3, 6 * ranks, 8, seed=seed) for seed in range(3))
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    mine = ring_attention(*(t.chunk(ranks, 2)[rank].contiguous() for t in (q, k, v)), causal)
    close(mine, wanted.chunk(ranks, 2)[rank], 1e-5, causal)
done("ring_attention")
