"""Ways to reduce gradients, and names that launched programs take: each result is that of one process on all data."""

import copy
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
from torch import nn
from torch.distributed._composable import checkpoint, replicate
from torch.distributed.algorithms import Join
from torch.distributed.checkpoint import load
from torch.distributed.checkpoint.format_utils import BroadcastingTorchSaveReader, DynamicMetaLoadPlanner
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.elastic.utils.store import barrier, synchronize
from torch.distributed.optim import _apply_optimizer_in_backward
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision


class Net(nn.Module):
    def __init__(self, unused: bool = False) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)
        if unused:
            self.unused = nn.Linear(64, 64)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def batch(rank: int, step: int = 0):
    return torch.arange(24, dtype=torch.float32).view(6, 4).mul(0.1 + rank).add(step).cos()


def expected(net: nn.Module, ranks: int) -> list:
    one = copy.deepcopy(net)
    sum(one(batch(rank)).pow(2).mean() / ranks for rank in range(ranks)).backward()
    return [p.grad for p in one.parameters()]


def check(net: nn.Module, model: nn.Module, ranks: int, wanted: list | None = None, **close) -> None:
    wanted = expected(net, ranks) if wanted is None else wanted
    model(batch(dist.get_rank())).float().pow(2).mean().backward()
    for mine, theirs in zip(net.parameters(), wanted, strict=True):
        if theirs is None:
            assert mine.grad is None
        else:
            torch.testing.assert_close(mine.grad, theirs, **close)


def data_parallel(ranks: int) -> None:
    sizes = []

    def seen(state: object, bucket: dist.GradBucket) -> torch.futures.Future:
        sizes.append(len(bucket.gradients()))
        return dist.all_reduce(bucket.buffer().div_(ranks), async_op=True).get_future().then(lambda f: f.value()[0])

    torch.manual_seed(0)
    narrow = _MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
    for options in (
        {"find_unused_parameters": True, "skip_all_reduce_unused_params": True},
        {"find_unused_parameters": True, "bucket_cap_mb_list": [4e-5, 1]},
    ):
        net = Net(unused=True)
        check(net, DistributedDataParallel(net, **options), ranks)
    net = Net()
    wide = DistributedDataParallel(net, find_unused_parameters=True, mixed_precision=narrow)
    assert wide(batch(0)).dtype == torch.bfloat16 and net.norm.running_var.dtype == torch.bfloat16
    assert {p.dtype for p in net.parameters()} == {torch.float32}
    net.zero_grad()
    check(net, wide, ranks, rtol=0.1, atol=0.05)
    del net.norm
    grouped = DistributedDataParallel(copy.deepcopy(net), bucket_cap_mb_list=[4e-5, 1])
    grouped.register_comm_hook(None, seen)
    grouped(batch(dist.get_rank())).sum().backward()
    assert sizes == [1, 3], sizes
    compressed = DistributedDataParallel(copy.deepcopy(net))
    compressed._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    compressed.zero_grad()
    net.zero_grad()
    check(compressed.module, compressed, ranks, rtol=1e-2, atol=1e-3)
    net.zero_grad()
    in_place = replicate(checkpoint(copy.deepcopy(net)))
    check(in_place, in_place, ranks, expected(net, ranks))
    assert [name for name, _ in in_place.named_parameters()] == [name for name, _ in net.named_parameters()]


def optimizers_in_backward(rank: int, ranks: int, first: bool) -> None:
    """Whether they are applied before the module is wrapped or after: they step by the average of all ranks."""
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    wanted = copy.deepcopy(net)
    sum(wanted(batch(k)).pow(2).mean() / ranks for k in range(ranks)).backward()
    torch.optim.SGD(wanted.parameters(), lr=0.1).step()
    if first:
        _apply_optimizer_in_backward(torch.optim.SGD, net.parameters(), {"lr": 0.1})
    model = DistributedDataParallel(net)
    if not first:
        _apply_optimizer_in_backward(torch.optim.SGD, net.parameters(), {"lr": 0.1})
    model(batch(rank)).pow(2).mean().backward()
    torch.testing.assert_close(list(net.parameters()), list(wanted.parameters()))


def unused_are_told() -> None:
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2), nn.Linear(2, 2)))
    model.module[1].forward = lambda x: x
    for _ in range(2):
        try:
            model(batch(0)).sum().backward()
        except RuntimeError as error:
            told = str(error)
    assert "1.weight, 1.bias" in told and told.endswith(f"for rank {dist.get_rank()}: 2 3"), told


def buffers_of_who_goes_on(rank: int) -> None:
    """Rank 0 ends first; the others' running statistics go on."""
    model = DistributedDataParallel(nn.BatchNorm1d(4))
    with Join([model]):
        for step in range(1 + rank):
            model(batch(rank, step)).sum().backward()
    assert model.module.num_batches_tracked.item() == dist.get_world_size(), model.module.num_batches_tracked


class Own(dist.Store):
    def __init__(self) -> None:
        super().__init__()
        self.values = {}

    def set(self, key, value) -> None:
        self.values[key] = value

    def get(self, key):
        return self.values[key]

    def add(self, key, amount):
        self.values[key] = str(int(self.values.get(key, b"0")) + amount).encode()
        return int(self.values[key])


def names(rank: int, ranks: int, path: str) -> None:
    own = Own()
    under = dist.PrefixStore("a", own)
    under.set("b", "c")
    under.multi_set(["d"], ["e"])
    assert own.values == {"a/b": b"c", "a/d": b"e"} and under.multi_get(["b", "d"]) == [b"c", b"e"]
    assert under.add("n", 2) == 2 and under.add("n", 3) == 5
    held = dist.HashStore()
    dist.PrefixStore("a", dist.PrefixStore("b", held)).set("k", "v")
    held.set("other", "v")
    assert dist.PrefixStore("b", held).list_keys() == ["a/k"]
    store = dist.distributed_c10d._get_default_store()
    assert synchronize(store, str(rank).encode(), rank, ranks, "told") == [str(k).encode() for k in range(ranks)]
    barrier(store, ranks, "together")
    x = torch.ones(ranks, requires_grad=True)
    differentiable.reduce_scatter(torch.empty(1), list(x.chunk(ranks))).mul(rank + 1).sum().backward()
    assert x.grad.tolist() == [float(k + 1) for k in range(ranks)]
    assert differentiable._all_gather_base(torch.empty(ranks, 2), torch.full((2,), rank)).tolist() == [
        [k, k] for k in range(ranks)
    ]
    whole = torch.arange(5.0)
    if rank == 0:
        torch.save({"x": {"y": whole}}, path)
    dist.barrier()
    state = {"x": {"y": distribute_tensor(torch.zeros(5), init_device_mesh("cpu", (ranks,)), [Shard(0)])}}
    reader = BroadcastingTorchSaveReader()
    load(state, storage_reader=reader, planner=DynamicMetaLoadPlanner(), checkpoint_id=path)
    assert torch.equal(state["x"]["y"].full_tensor(), whole)


@record
def main() -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    data_parallel(ranks)
    optimizers_in_backward(rank, ranks, True)
    optimizers_in_backward(rank, ranks, False)
    unused_are_told()
    buffers_of_who_goes_on(rank)
    names(rank, ranks, sys.argv[1])
    print(f"{rank} is done", flush=True)
    dist.destroy_process_group()
    if os.environ.get("FAIL"):
        raise ValueError("told to fail")


if __name__ == "__main__":
    main()
