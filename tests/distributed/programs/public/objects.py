"""What evaluations and logs send: objects of any kind, results of uneven length, groups of some ranks, barriers."""

import datetime
from collections import OrderedDict
from dataclasses import dataclass

import torch
import torch.distributed as dist
from common import close, done, drawn, init


@dataclass
class Metric:
    name: str
    value: torch.Tensor
    history: list


class AverageMeter:
    def __init__(self) -> None:
        self.sum, self.count = 0.0, 0

    def update(self, value: float, n: int = 1) -> None:
        self.sum, self.count = self.sum + value * n, self.count + n

    def all_reduce(self) -> float:
        total = torch.tensor([self.sum, self.count], dtype=torch.float32)
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        self.sum, self.count = total.tolist()
        return self.sum / self.count


def padded_gather(tensor: torch.Tensor) -> torch.Tensor:
    """Rows of another number on each rank."""
    size = torch.tensor([tensor.shape[0]])
    sizes = [torch.zeros_like(size) for _ in range(ranks)]
    dist.all_gather(sizes, size)
    most = int(max(s.item() for s in sizes))
    padded = torch.cat([tensor, tensor.new_zeros(most - tensor.shape[0], *tensor.shape[1:])])
    found = [torch.empty_like(padded) for _ in range(ranks)]
    dist.all_gather(found, padded)
    return torch.cat([rows[: int(s.item())] for rows, s in zip(found, sizes, strict=True)])


rank, ranks = init()
found = [None] * ranks
dist.all_gather_object(found, Metric(f"loss{rank}", torch.full((rank,), 2.0), [rank] * 3))
assert [m.name for m in found] == [f"loss{k}" for k in range(ranks)] and found[-1].value.shape == (ranks - 1,)
config = [{"lr": 0.1, "shape": torch.Size([2, 3])}, OrderedDict(a=1), "name"] if rank == ranks - 1 else [None] * 3
dist.broadcast_object_list(config, src=ranks - 1, device=torch.device("cpu"))
assert config[0]["shape"] == torch.Size([2, 3]) and config[1]["a"] == 1 and config[2] == "name"
gathered = [None] * ranks if rank == 0 else None
dist.gather_object({"rank": rank, "predictions": drawn(rank + 1, seed=rank)}, gathered, dst=0)
if rank == 0:
    for k, each in enumerate(gathered):
        close(each["predictions"], drawn(k + 1, seed=k), 0)
box = [None]
dist.scatter_object_list(box, [f"part {k}" for k in range(ranks)] if rank == 0 else [None] * ranks, src=0)
assert box == [f"part {rank}"]
meter = AverageMeter()
for k in range(rank + 1):
    meter.update(float(k), 2)
wanted = [k for r in range(ranks) for k in range(r + 1)]
assert abs(meter.all_reduce() - sum(wanted) / len(wanted)) < 1e-6
close(padded_gather(drawn(rank * 2, 3, seed=rank)), torch.cat([drawn(k * 2, 3, seed=k) for k in range(ranks)]), 0)
evens, last = dist.new_group(list(range(0, ranks, 2))), dist.new_group([ranks - 2, ranks - 1], backend="gloo")
if rank % 2 == 0:
    total = torch.ones(2)
    dist.all_reduce(total, group=evens)
    assert total[0] == dist.get_world_size(evens) and dist.get_group_rank(evens, rank) == rank // 2
else:
    assert dist.get_rank(evens) == -1
if rank >= ranks - 2:
    one = torch.tensor([rank])
    dist.broadcast(one, src=ranks - 1, group=last)
    assert one.item() == ranks - 1 and dist.get_process_group_ranks(last) == [ranks - 2, ranks - 1]
dist.monitored_barrier(timeout=datetime.timedelta(seconds=60), wait_all_ranks=True)
done("objects")
