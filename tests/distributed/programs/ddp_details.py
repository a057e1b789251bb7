"""What DistributedDataParallel does with gradients that some ranks, or some iterations, have none of."""

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed.optim.apply_optimizer_in_backward import _apply_optimizer_in_backward
from tesserack.nn.parallel import DistributedDataParallel as DDP


def weight(layer: nn.Module) -> float:
    return layer.weight.grad.item()


class Choosing(nn.Module):
    """Uses the layers that it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1, 1, bias=False) for _ in range(4))

    def forward(self, x: ts.Tensor, *used: int) -> tuple[ts.Tensor, ...]:
        return tuple(self.layers[k](x) for k in used)


def raises(text: str, call) -> None:
    try:
        call()
    except RuntimeError as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"expected an error with {text!r}")


def accumulated(me: int, **options) -> None:
    """What no_sync left with a layer is reduced though the last backward does not reach it."""
    model = DDP(Choosing(), find_unused_parameters=True, **options)
    layers, x = model.module.layers, ts.ones(1, 1) * (me + 1)
    with model.no_sync():
        model(x, me)[0].backward()
    model(x, 2)[0].backward()
    assert [weight(layer) for layer in layers[:3]] == [0.5, 1.0, 1.5], [layer.weight.grad for layer in layers]
    assert layers[3].weight.grad is None
    model(x, 2)[0].backward()  # what nobody uses stays as it is
    assert [weight(layer) for layer in layers[:3]] == [0.5, 1.0, 3.0]


def beside_the_loss(me: int) -> None:
    """Outputs that take no part in the loss."""
    model = DDP(Choosing(), find_unused_parameters=True)
    for times in (1, 2):
        one, _ = model(ts.ones(1, 1), 0, 1)
        one.backward()
        assert weight(model.module.layers[0]) == times and model.module.layers[1].weight.grad is None
    one, other = model(ts.ones(1, 1), 0, 1)
    one.backward()
    raises("ready only once: layers.1.weight", other.backward)


def static(me: int) -> None:
    model = DDP(Choosing(), static_graph=True)
    for times in (1, 2, 3):  # another layer on each rank
        model(ts.ones(1, 1) * (me + 1), me)[0].backward()
        assert [weight(layer) for layer in model.module.layers[:2]] == [times / 2, times]
        assert model.module.layers[2].weight.grad is None
    raises("training graph has changed", lambda: model(ts.ones(1, 1), 3)[0].backward())
    late = DDP(Choosing())
    late(ts.ones(1, 1), *range(4))
    raises("before training loop starts", late._set_static_graph)


def joined(me: int) -> None:
    """Averages over the ranks that still have data; a rank that has none keeps no gradient of the others."""
    for views in (False, True):
        model = DDP(nn.Linear(1, 1, bias=False), gradient_as_bucket_view=views)
        for whole in (False, True, False):
            with model.join(divide_by_initial_world_size=whole):
                for k in range(2 + 2 * me):
                    model(ts.ones(1, 1)).backward()
                    assert weight(model.module) == (1.0 if k < 2 or not whole else 0.5), (whole, k)
                    model.zero_grad()
            assert model.module.weight.grad is None
    model(ts.ones(1, 1)).backward()
    assert weight(model.module) == 1.0
    try:
        with model.join(throw_on_early_termination=True):
            for _ in range(2 + me):
                model(ts.ones(1, 1)).backward()
    except RuntimeError as error:
        assert ("Rank 0 exhausted all inputs" if me == 0 else "at least one rank that exhausted") in str(error)
    else:
        raise AssertionError("expected an error on both ranks")


def steps_in_backward(me: int) -> None:
    """Optimizers that step in backward do so with the gradients of all ranks."""
    layer = nn.Linear(1, 1, bias=False)
    nn.init.ones_(layer.weight)
    _apply_optimizer_in_backward(ts.optim.SGD, layer.parameters(), {"lr": 1.0})
    DDP(layer)(ts.ones(1, 1) * (2 * me + 1)).backward()
    assert layer.weight.item() == 1.0 - 2.0 and layer.weight.grad is None


def evaluated_alone(me: int) -> None:
    layer = nn.SyncBatchNorm(2, track_running_stats=False).eval()
    x = ts.rand(4, 2)
    if me == 0:
        assert ts.allclose(layer(x), nn.functional.batch_norm(x, None, None, layer.weight, layer.bias, True))


def summed_together() -> None:
    """Complex tensors beside real ones."""
    one, two = ts.ones(3), ts.full((2,), 1 + 2j)
    dist.all_reduce_coalesced([one, two])
    assert one.tolist() == [2.0] * 3 and two.tolist() == [2 + 4j] * 2
    work = dist.all_reduce_coalesced([two, one], op=dist.ReduceOp.AVG, async_op=True)
    work.wait()
    assert one.tolist() == [2.0] * 3 and two.tolist() == [2 + 4j] * 2


def where_they_are(me: int) -> None:
    """Gradients in the host's memory are averaged where they are, beside those that lie otherwise or are none."""
    seen: list[float] = []
    layers = Choosing()
    layers.layers[1].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.item()))
    model = DDP(layers, find_unused_parameters=True)
    (bucket,) = model.reducer.buckets
    for times in (1, 2):
        outputs = model(ts.ones(1, 1) * (2 * me + 1), 0, 1, *([2] if me else []))
        kept = [layer.weight.grad for layer in layers.layers]
        sum(outputs).backward()
        # rank 1 alone uses the third layer
        assert [weight(layer) for layer in layers.layers[:3]] == [2.0 * times, 2.0 * times, 1.5 * times]
        assert layers.layers[3].weight.grad is None
        if dist.group.WORLD.engine.takes_parts:  # a buffer holds what other hooks may look at, and zeros
            assert [bucket.views[3 - k].item() for k in (0, 3)] == [0.0, 0.0] and bucket.views[2].item() != 0
        if times == 2:
            assert kept[0] is layers.layers[0].weight.grad
    assert seen == [2.0 * me + 1, 2.0 + 2 * me + 1], seen  # its own, whatever is under way


class Many(nn.Module):
    """Parameters of all layouts, more of them than a round of the communicator takes."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.out = nn.Linear(300, 700), nn.Linear(700, 5)
        self.image, self.words = nn.Conv2d(1, 3, 3).to(memory_format=ts.channels_last), nn.Embedding(4, 3)

    def forward(self, rank: int) -> ts.Tensor:
        image = self.image(ts.full((1, 1, 5, 5), 2.0 * rank))
        return (
            self.out(self.wide(ts.full((2, 300), 1.0 + rank))).sum() + image.sum() + self.words(ts.tensor([rank])).sum()
        )


def lying_otherwise(me: int) -> None:
    """Parts of all kinds in one bucket."""
    model = Many()
    wrapped = DDP(model, bucket_cap_mb=100)
    each = [ts.autograd.grad(model(rank), list(model.parameters())) for rank in range(2)]
    for _ in range(2):
        model.zero_grad()
        wrapped(me).backward()
        for parameter, *both in zip(model.parameters(), *each, strict=True):
            assert (
                ts.allclose(parameter.grad, sum(both) / 2, rtol=1e-6) and parameter.grad.stride() == parameter.stride()
            )


def main() -> None:
    dist.init_process_group()
    me = dist.get_rank()
    accumulated(me)
    accumulated(me, gradient_as_bucket_view=True)
    for check in (beside_the_loss, static, joined, steps_in_backward, evaluated_alone):
        check(me)
    where_they_are(me)
    lying_otherwise(me)
    summed_together()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
