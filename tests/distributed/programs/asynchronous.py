"""Every collective by itself gives what it gives at once; gradients of gradients go through sharded parameters."""

import copy
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed.fsdp import FullyShardedDataParallel, fully_shard
from tesserack.utils._pytree import tree_flatten


def alike(name: str, make: Callable[[], list[Any]], call: Callable[..., Any]) -> None:
    """``call(*tensors, async_op=...)`` both ways, each on tensors of its own."""
    results = []
    for by_itself in (False, True):
        given = make()
        work = call(*given, async_op=by_itself)
        assert (work is not None) == by_itself, name
        if work is not None:
            assert work.wait() and work.is_completed() and work.is_success(), name
            work.get_future().wait()
        results.append([leaf for leaf in tree_flatten(given)[0] if isinstance(leaf, ts.Tensor)])
    assert all(ts.equal(a, b) for a, b in zip(*results, strict=True)), (name, results)


def collectives() -> None:
    n, me = dist.get_world_size(), dist.get_rank()

    def some(*shape: int) -> ts.Tensor:
        return ts.rand(shape, generator=ts.Generator().manual_seed(me))

    def places(*shape: int) -> list[ts.Tensor]:
        return [ts.zeros(shape) for _ in range(n)]

    alike("all_reduce", lambda: [some(3, 2)], dist.all_reduce)
    alike("broadcast", lambda: [some(3)], lambda x, **k: dist.broadcast(x, 0, **k))
    alike("all_gather", lambda: [places(3), some(3)], dist.all_gather)
    alike("all_gather_into_tensor", lambda: [ts.zeros(3 * n), some(3)], dist.all_gather_into_tensor)
    alike("gather", lambda: [some(3), places(3) if me == 0 else None], lambda x, y, **k: dist.gather(x, y, 0, **k))
    alike("scatter", lambda: [ts.zeros(3), [some(3)] * n if me == 0 else None], dist.scatter)
    alike("reduce_scatter", lambda: [ts.zeros(3), [some(3)] * n], dist.reduce_scatter)
    alike("reduce_scatter_tensor", lambda: [ts.zeros(4)[::2], some(2 * n, 2)[:, 0]], dist.reduce_scatter_tensor)
    alike("all_to_all", lambda: [places(2), [some(2)] * n], dist.all_to_all)
    alike("all_to_all_single", lambda: [ts.zeros(2 * n), some(2 * n)], dist.all_to_all_single)
    alike("all_reduce_coalesced", lambda: [[some(3), some(2, 2)]], dist.all_reduce_coalesced)
    several = [[ts.zeros(3), ts.zeros(2, 2)] for _ in range(n)]
    alike(
        "all_gather_coalesced",
        lambda: [copy.deepcopy(several), [some(3), some(2, 2)]],
        dist.all_gather_coalesced,
    )
    alike("barrier", list, dist.barrier)


def penalty(model: nn.Module) -> ts.Tensor:
    x = ts.rand(3, 4, generator=ts.Generator().manual_seed(1)).requires_grad_()
    out = model(x)
    (grad,) = ts.autograd.grad(out.sum(), x, create_graph=True)
    return grad.square().sum() + out.square().mean()


def gradients_of_gradients() -> None:
    ts.manual_seed(0)
    alone = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    each, whole, shared = (copy.deepcopy(alone) for _ in range(3))
    fully_shard(each[0])
    fully_shard(each)
    wrapped = FullyShardedDataParallel(whole, use_orig_params=True)
    averaged = nn.parallel.DistributedDataParallel(shared)
    for model in (alone, each, wrapped, averaged):
        penalty(model).backward()
    with FullyShardedDataParallel.summon_full_params(wrapped, with_grads=True):
        for p, q, r, s in zip(*(m.parameters() for m in (alone, each, wrapped, averaged)), strict=True):
            for grad in (q.grad.full_tensor(), r.grad, s.grad):
                assert ts.allclose(grad, p.grad, atol=1e-6), (grad, p.grad)


dist.init_process_group()
collectives()
gradients_of_gradients()
dist.destroy_process_group()
