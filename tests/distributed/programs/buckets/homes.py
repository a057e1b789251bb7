"""Gradients that are made in the memory of their buckets are those of modules without any."""

import copy
from collections.abc import Iterator

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed.algorithms.ddp_comm_hooks import default_hooks


def net() -> nn.Module:
    """Large and small parameters."""
    ts.manual_seed(0)
    return nn.Sequential(nn.Linear(200, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 3))


def batch(step: int) -> ts.Tensor:
    """This rank's."""
    return ts.randn(8, 200, generator=ts.Generator().manual_seed(1000 * step + dist.get_rank()))


def averaged(plain: nn.Module) -> Iterator[ts.Tensor]:
    """Gradients of a module that nobody wraps, over the ranks."""
    for parameter in plain.parameters():
        grad = parameter.grad.clone()
        dist.all_reduce(grad, dist.ReduceOp.AVG)
        yield grad


def check(model: nn.Module, plain: nn.Module) -> None:
    """The same gradients, to the bit."""
    for parameter, expected in zip(model.parameters(), averaged(plain), strict=True):
        assert ts.equal(parameter.grad, expected)


def homes(model: nn.Module) -> list[bool]:
    """Of large parameters: whether the gradient lies in its bucket."""
    found = []
    for bucket in model.reducer.buckets:
        low = bucket.buffer.data_ptr()
        high = low + bucket.buffer.numel() * bucket.buffer.element_size()
        for parameter in bucket.parameters:
            if parameter.numel() > 1 << 15:
                found.append(low <= parameter.grad.data_ptr() < high)
    return found


def step(model: nn.Module, x: ts.Tensor) -> None:
    """A backward."""
    model(x).square().mean().backward()


def plain_steps(as_views: bool) -> None:
    """Steps; a gradient that somebody keeps stays what it was, and those after it are right."""
    base = net()
    model = nn.parallel.DistributedDataParallel(copy.deepcopy(base), gradient_as_bucket_view=as_views)
    kept = values = None
    for at in range(6):
        for each in (model, base):
            each.zero_grad()
            step(each, batch(at))
        check(model, base)
        assert homes(model) == ([True, True] if at < 4 or as_views else [False, False]), (at, homes(model))
        if at == 3 and not as_views:
            kept = model.module[2].weight.grad
            values = kept.clone()
        for each in (model, base):
            for parameter in each.parameters():
                parameter.data.sub_(0.01 * parameter.detach())
    assert kept is None or ts.equal(kept, values)


def accumulated() -> None:
    """Gradients of several backwards."""
    base = net()
    model = nn.parallel.DistributedDataParallel(copy.deepcopy(base))
    for at in range(3):
        for each in (model, base):
            each.zero_grad(set_to_none=at != 1)
        with model.no_sync():
            step(model, batch(at))
        step(base, batch(at))
        step(model, batch(at + 50))
        step(base, batch(at + 50))
        if at == 1 or at == 0:  # what was there was averaged already, and is the same on all ranks
            check(model, base)
        assert all(homes(model))


def hooked() -> None:
    """A communication hook has the buffer."""
    base = net()
    model = nn.parallel.DistributedDataParallel(copy.deepcopy(base))
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    for at in range(3):
        for each in (model, base):
            each.zero_grad()
            step(each, batch(at))
        for parameter, expected in zip(model.parameters(), averaged(base), strict=True):
            ts.testing.assert_close(parameter.grad, expected)


def watched() -> None:
    """Whoever looks at gradients as they come sees this rank's."""
    base = net()
    model = nn.parallel.DistributedDataParallel(copy.deepcopy(base))
    seen = {}
    for name, parameter in model.module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: seen.update({name: p.grad.clone()}))
    for at in range(2):
        for each in (model, base):
            each.zero_grad()
            step(each, batch(at))
        for name, parameter in base.named_parameters():
            assert ts.equal(seen[name], parameter.grad)
        check(model, base)


def uneven() -> None:
    """A rank without data leaves its gradients alone."""
    model = nn.parallel.DistributedDataParallel(net())
    with model.join():
        for at in range(2 + 2 * dist.get_rank()):
            model.zero_grad()
            step(model, batch(at))
            mine = [p.grad.clone() for p in model.parameters()]
    for parameter, before in zip(model.parameters(), mine, strict=True):
        assert ts.equal(parameter.grad, before)


def some_unused() -> None:
    """A gradient that no rank uses stays, one that another uses is averaged."""

    class Choosing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(200, 200), nn.Linear(200, 200)

        def forward(self, x: ts.Tensor, which: str) -> ts.Tensor:
            return getattr(self, which)(x)

    model = nn.parallel.DistributedDataParallel(Choosing(), find_unused_parameters=True)
    model(batch(0), "one").sum().backward()
    one = model.module.one.weight.grad
    values = one.clone()
    model.zero_grad(set_to_none=False)
    one.copy_(values)
    for _ in range(2):
        model.module.two.weight.grad = None
        model(batch(1), "two").sum().backward()
        assert model.module.one.weight.grad is one and ts.equal(one, values)
    model.zero_grad()
    model(batch(2), "one" if dist.get_rank() else "two").sum().backward()
    for layer in (model.module.one, model.module.two):
        gathered = [ts.empty_like(layer.weight.grad) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, layer.weight.grad)
        assert layer.weight.grad.abs().sum() > 0 and all(ts.equal(gathered[0], g) for g in gathered)


def copied() -> None:
    """A rank may copy its module by itself, or lose it."""
    model = nn.parallel.DistributedDataParallel(net())
    if dist.get_rank() == 0:
        assert copy.deepcopy(model).reducer.buckets[0].shared is False
    step(model, batch(0))
    grads = [p.grad for p in model.module.parameters()]
    values = [g.clone() for g in grads]
    del model
    assert all(ts.equal(g, v) for g, v in zip(grads, values, strict=True))


def high_orders() -> None:
    """Gradients with a history keep more than the gradient."""
    module = net()
    model = nn.parallel.DistributedDataParallel(module)
    for at in range(2):
        model.zero_grad()
        loss = model(batch(at)).square().mean()
        first = ts.autograd.grad(loss, list(module.parameters()), create_graph=True)
        (loss + sum(g.square().sum() for g in first)).backward()
    assert all(p.grad is not None for p in module.parameters())


dist.init_process_group()
for views in (False, True):
    plain_steps(views)
for part in (accumulated, hooked, watched, uneven, some_unused, copied, high_orders):
    part()
    dist.barrier()
print("same gradients", flush=True)
dist.destroy_process_group()
