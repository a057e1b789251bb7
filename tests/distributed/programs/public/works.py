"""Works that are begun and waited for later: buffers in turn, many at once, futures, and several in one call."""

import torch
import torch.distributed as dist
from common import close, done, drawn, init

rank, ranks = init()

# Buffers in turn: one is on its way while the other is made.
buffers, works, totals = [torch.empty(1000), torch.empty(1000)], [None, None], []
for step in range(9):
    k = step % 2
    if works[k] is not None:
        works[k].wait()
        totals.append(buffers[k].clone())
    buffers[k].copy_(drawn(1000, seed=10 * step + rank))
    works[k] = dist.all_reduce(buffers[k], async_op=True)
for step in (7, 8):
    works[step % 2].wait()
    totals.append(buffers[step % 2].clone())
for step, total in enumerate(totals):
    close(total, sum(drawn(1000, seed=10 * step + k) for k in range(ranks)), 1e-5, step)

# Many at once, waited for in another order.
given = [torch.full((k + 1,), float(rank + k)) for k in range(20)]
handles = [dist.broadcast(tensor, src=k % ranks, async_op=True) for k, tensor in enumerate(given)]
for handle in reversed(handles):
    handle.wait()
assert all(handle.is_completed() for handle in handles)
assert [tensor[0].item() for tensor in given] == [float(k % ranks + k) for k in range(20)]

# Futures.
tensor = torch.full((3,), float(rank))
future = dist.all_reduce(tensor, async_op=True).get_future()
halved = future.then(lambda done: done.value()[0] / 2)
close(halved.wait(), torch.full((3,), sum(range(ranks)) / 2), 0)

# A ring of messages with tags, and one from anybody.
right, left = (rank + 1) % ranks, (rank - 1) % ranks
out, into = [torch.full((2,), 10.0 * rank + tag) for tag in range(3)], [torch.empty(2) for _ in range(3)]
sent = [dist.isend(tensor, right, tag=tag) for tag, tensor in enumerate(out)]
taken = [dist.irecv(tensor, left, tag=tag) for tag, tensor in enumerate(into)]
for work in sent + taken:
    work.wait()
assert [t[0].item() for t in into] == [10.0 * left + tag for tag in range(3)]
if rank == 0:
    seen = set()
    for _ in range(ranks - 1):
        word = torch.empty(1)
        seen.add(dist.recv(word))
        assert word.item() in seen
    assert seen == set(range(1, ranks))
else:
    dist.send(torch.tensor([float(rank)]), 0)

# A barrier that is waited for later, and chunks into one tensor.
waiting = dist.barrier(async_op=True)
whole = torch.empty(ranks * 4)
dist.all_gather_into_tensor(whole, torch.arange(4.0) + rank, async_op=True).wait()
waiting.wait()
close(whole, torch.cat([torch.arange(4.0) + k for k in range(ranks)]), 0)
done("works")
