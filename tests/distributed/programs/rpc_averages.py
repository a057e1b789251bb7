"""Wrapped modules within distributed backward passes: the averages over ranks that backward leaves in ``grad``.

Runs on each rank.
"""

from typing import Any

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed import autograd, rpc


class Branches(nn.Module):
    """Of its layers some take part: on rank 0 the first two, on others the first."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        return self.two(self.one(x)) if dist.get_rank() == 0 else self.one(x)


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))


def scaled(x: ts.Tensor, scale: ts.Tensor) -> ts.Tensor:
    return x * scale


def compared(make: Any, **options: Any) -> None:
    """Inputs and outputs are another worker's; a leaf of ours stands before it all."""
    ts.manual_seed(dist.get_rank())
    model = nn.parallel.DistributedDataParallel(make(), **options)
    following = f"worker{(dist.get_rank() + 1) % dist.get_world_size()}"
    called: list[ts.Tensor] = []
    handle = model.module.get_submodule("0" if make is layers else "one").weight.register_hook(called.append)
    for _ in range(3):
        x, scale = ts.rand(5, 4), ts.full((4,), 1.5, requires_grad=True)
        model.zero_grad()
        model(x * scale * 2).square().sum().backward()
        expected = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        local = scale.grad
        called.clear()
        with autograd.context() as number:
            y = model(rpc.rpc_sync(following, scaled, (x * scale, ts.tensor(2.0))))
            loss = rpc.rpc_sync(following, ts.square, (y,)).sum()
            before = [None if p.grad is None else (p.grad, p.grad.clone()) for p in model.parameters()]
            autograd.backward(number, [loss])
            found = autograd.get_gradients(number)
            assert len(called) == 1 and ts.allclose(found[scale], local)
            for p, wanted, kept in zip(model.parameters(), expected, before, strict=True):
                assert (wanted is None) == (p not in found)
                if wanted is not None:
                    assert ts.allclose(found[p], wanted, atol=1e-6), (found[p], wanted)
                assert (p.grad is None) if kept is None else (p.grad is kept[0])
                assert kept is None or options.get("gradient_as_bucket_view") or ts.equal(p.grad, kept[1])
        dist.barrier()
    handle.remove()


def main() -> None:
    dist.init_process_group()
    me, size = dist.get_rank(), dist.get_world_size()
    rpc.init_rpc(f"worker{me}", rank=me, world_size=size)
    compared(layers)
    compared(layers, gradient_as_bucket_view=True)
    compared(layers, static_graph=True)
    compared(layers, bucket_cap_mb=0.0001)
    compared(Branches, find_unused_parameters=True)
    ts.manual_seed(me)
    model = nn.parallel.DistributedDataParallel(layers())
    with model.no_sync(), autograd.context() as number:
        x = ts.rand(5, 4)
        autograd.backward(number, [model(x).sum()])
        alone = model.module(x).sum()
        assert ts.allclose(
            autograd.get_gradients(number)[model.module[0].bias], ts.autograd.grad(alone, model.module[0].bias)[0]
        )
    rpc.shutdown()
    print(f"{me} is done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
