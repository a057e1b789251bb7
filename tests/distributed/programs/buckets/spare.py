"""Ranks of which some have a processor to spare make the same buckets, and have the gradients of the whole batch."""

import os
import sys

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group()
rank, ranks = dist.get_rank(), dist.get_world_size()
ts.set_num_threads(1)
spare, expected = sys.argv[1] == "some", int(sys.argv[2])
os.environ["LOCAL_WORLD_SIZE"] = "0" if spare and rank == 0 else "1000000"

layers = [nn.Linear(300, 300) for _ in range(5)]  # 360 kB each
ts.manual_seed(0)
for layer in layers:
    nn.init.normal_(layer.weight, std=0.05)
plain, model = nn.Sequential(*layers), None
copy = nn.Sequential(*[nn.Linear(300, 300) for _ in range(5)])
copy.load_state_dict(plain.state_dict())
seen: list[int] = []
for static in (False, True):
    model = DDP(copy, static_graph=static)
    assert len(model.reducer.buckets) == expected, f"rank {rank}: {len(model.reducer.buckets)} buckets"
    watched = copy[2].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.numel()))
    data = ts.randn(4 * ranks, 300)
    for _ in range(3):
        model.zero_grad()
        plain.zero_grad()
        model(data[4 * rank : 4 * rank + 4]).square().mean().backward()
        plain(data).square().mean().backward()
        for p, q in zip(plain.parameters(), copy.parameters(), strict=True):
            ts.testing.assert_close(q.grad, p.grad, rtol=1e-5, atol=1e-7)
    watched.remove()
    model.reducer.remove()
assert seen == [90_000] * 6
print("same gradients")
dist.destroy_process_group()
