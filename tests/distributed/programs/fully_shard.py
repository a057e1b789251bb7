"""Models under ``fully_shard`` follow the same on one rank and the whole batch. Runs on each rank."""

import copy
import functools
import tempfile
from pathlib import Path

import tesserack as ts
from nets import WIDTH, Block, Net, alike, data, trained
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed import checkpoint
from tesserack.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from tesserack.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from tesserack.distributed.tensor import DTensor, Replicate, Shard
from tesserack.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from tesserack.distributed.tensor.placement_types import _StridedShard


def divided(**options: object) -> Net:
    model = Net()
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def furthest(alone: nn.Module, shared: nn.Module) -> float:
    found = {name.replace("_checkpoint_wrapped_module.", ""): p for name, p in shared.named_parameters()}
    expected = dict(alone.named_parameters())
    assert list(found) == list(expected) and all(isinstance(p, DTensor) for p in found.values()), list(found)
    return max((found[name].full_tensor() - p).abs().max().item() for name, p in expected.items())


def main() -> None:
    dist.init_process_group()
    n, me = dist.get_world_size(), dist.get_rank()
    x, y = data()
    mine = slice(me, None, n)
    alone = Net()
    optimizer = trained(alone, x, y, steps=8)
    briefly = copy.deepcopy(alone)
    trained(alone, x, y, steps=42, optimizer=optimizer)
    configurations: list[dict] = [
        {},
        {"reshard_after_forward": False},
        {"reshard_after_forward": True, "offload_policy": CPUOffloadPolicy()},
        {"shard_placement_fn": lambda p: Shard(p.ndim - 1)},
    ]
    if n == 4:
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "parts"))
        configurations += [{"reshard_after_forward": 2}, {"mesh": mesh}, {"mesh": mesh["parts"], "copies": True}]
    for number, options in enumerate(configurations):
        batch = mine
        if options.pop("copies", False):  # the same on both halves of the ranks
            batch = slice(me % 2, None, 2)
        shared = divided(**options)
        trained(shared, x[batch], y[batch], weight=2 if batch is not mine else n, steps=8 if number else 50)
        distance = furthest(briefly if number else alone, shared)
        assert distance < 1e-5, (options, distance)
        assert not any(group.is_whole for m in shared.modules() if isinstance(m, FSDPModule) for group in m._groups())
    if n == 4:
        weight = divided(mesh=mesh).head.weight
        assert weight.placements == (Replicate(), Shard(0)) and weight.device_mesh == mesh
    for check in (
        accumulates_and_clips,
        freezes,
        mixes,
        checkpoints,
        goes_twice,
        begins_on_meta,
        frees,
        is_told,
        crosses,
        recovers,
    ):
        check(x, y, n, me)
    dist.destroy_process_group()


def accumulates_and_clips(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    mine = slice(me, None, n)
    alone, shared = Net(), divided()
    trained(alone, x, y, clip=0.05, steps=10)
    trained(shared, x[mine], y[mine], n, parts=3, clip=0.05, steps=10)
    assert furthest(alone, shared) < 1e-5
    if n == 4:  # copies reduced only at the end
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "parts"))
        shared = divided(mesh=mesh)
        for part in range(3):
            shared.set_requires_all_reduce(part == 2)
            loss = nn.functional.cross_entropy(shared(x[mine][part::3]), y[mine][part::3], reduction="sum")
            loss.backward()
            assert (shared.head.bias.grad is None) == (part < 2)
        alone = Net()
        nn.functional.cross_entropy(alone(x), y, reduction="sum").backward()
        for p, q in zip(shared.parameters(), alone.parameters(), strict=True):
            assert (p.grad.full_tensor() * n - q.grad).abs().max().item() < 1e-4


def freezes(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    mine = slice(me, None, n)
    for entirely in (True, False):
        alone, shared = Net(), divided()
        for model in (alone, shared):
            (model.blocks[1] if entirely else model.blocks[1].one).requires_grad_(False)
        trained(alone, x, y, steps=10)
        trained(shared, x[mine], y[mine], n, steps=10)
        assert furthest(alone, shared) < 1e-5
        assert not any(group.is_whole for group in shared._groups(recurse=True))


def mixes(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    seen: list[ts.dtype] = []

    class Layer(nn.Linear):
        def forward(self, z: ts.Tensor) -> ts.Tensor:
            seen.extend((z.dtype, self.weight.dtype))
            return super().forward(z)

    ts.manual_seed(0)
    model = nn.Sequential(Layer(4, 8), nn.ReLU(), Layer(8, 1))
    policy = MixedPrecisionPolicy(param_dtype=ts.bfloat16, reduce_dtype=ts.float32, output_dtype=ts.float32)
    for layer in (model[0], model[2]):
        fully_shard(layer, mp_policy=MixedPrecisionPolicy(param_dtype=ts.bfloat16, reduce_dtype=ts.float32))
    fully_shard(model, mp_policy=policy)
    optimizer, losses = ts.optim.SGD(model.parameters(), lr=0.05), []
    for _ in range(40):
        optimizer.zero_grad()
        output = model(ts.arange(8.0).view(2, 4) / 8)
        assert output.dtype == ts.float32
        loss = (output.squeeze(1) - ts.tensor([0.0, 1.0])).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert set(seen) == {ts.bfloat16} and losses[-1] < 0.5 * losses[0], (seen, losses)
    assert all(p.dtype == p.grad.dtype == ts.float32 for p in model.parameters())


def checkpoints(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    mine = slice(me, None, n)
    alone = Net()
    trained(alone, x, y, steps=10)
    for inside in (True, False):
        shared = Net()
        if inside:
            apply_activation_checkpointing(shared, check_fn=lambda m: isinstance(m, Block))
        for block in shared.blocks:
            fully_shard(block)
        if not inside:
            apply_activation_checkpointing(shared, check_fn=lambda m: isinstance(m, Block))
        fully_shard(shared)
        trained(shared, x[mine], y[mine], n, steps=10)
        assert furthest(alone, shared) < 1e-5


def goes_twice(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    """Two forwards before a backward; activations computed again by a backward of their own; a scaler."""
    mine = slice(me, None, n)
    reentrant = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)
    alone, shared, again = Net(), divided(), divided()
    apply_activation_checkpointing(again, reentrant, lambda m: isinstance(m, Block))
    for model, part, weight in ((alone, slice(None), 1), (shared, mine, n), (again, mine, n)):
        optimizer = ts.optim.SGD(model.parameters(), lr=0.001)
        for _ in range(5):
            optimizer.zero_grad()
            ((model(x[part]).sum() + model(x.flip(0)[part]).square().sum()) * weight / 24).backward()
            optimizer.step()
    distances = furthest(alone, shared), furthest(alone, again)
    assert max(distances) < 1e-5, distances
    scaler, optimizer = ts.amp.GradScaler("cpu", init_scale=8.0), ts.optim.SGD(shared.parameters(), lr=0.001)
    for turn, expected in enumerate((8.0, 4.0, 4.0)):
        loss = shared(x[mine]).sum() * (float("inf") if turn == 1 and me == 0 else 1.0)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == expected
    assert all(bool(p.full_tensor().isfinite().all()) for p in shared.parameters())
    half = divided().to(ts.bfloat16)
    half(x[mine]).sum().backward()
    assert all(p.dtype == p.grad.dtype == ts.bfloat16 for p in half.parameters())


def begins_on_meta(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    with ts.device("meta"):
        model = nn.Sequential(nn.Linear(WIDTH, 9), nn.ReLU(), nn.LayerNorm(9), nn.Linear(9, 2))
    for layer in (model[0], model[3]):
        fully_shard(layer)
    fully_shard(model)
    assert all(p.is_meta and isinstance(p, DTensor) for p in model.parameters())
    model.to_empty(device="cpu")
    for layer in model.modules():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    whole = model[0].weight.full_tensor()
    assert 0.05 < whole.abs().max().item() < WIDTH**-0.5 + 1e-6 and alike(whole, n)
    assert len(set(whole.flatten().tolist())) > 50  # ranks draw different numbers for their parts
    optimizer = ts.optim.Adam(model.parameters(), lr=0.1)
    before = model[3].bias.full_tensor().clone()
    model(ts.ones(2, WIDTH)).square().sum().backward()
    optimizer.step()
    assert (model[3].bias.full_tensor() != before).all()


def frees(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    """Between steps a rank holds its part of parameters, gradients and the optimizer's two; whole, two at most."""
    width, depth = 252, 6  # what parts take fits what the allocator gives
    unit = 4 * (width * width + width)

    def held() -> int:
        return ts.memory_stats("cpu")["allocated"]

    before = held()
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = ts.optim.Adam(model.parameters(), lr=1e-3)
    inputs = ts.ones(1, width)
    for _ in range(3):
        optimizer.zero_grad()
        start = held()
        ts.reset_peak_memory_stats("cpu")
        output = model(inputs)
        forward = ts.memory_stats("cpu")["allocated_peak"] - start
        output.sum().backward()
        highest = ts.memory_stats("cpu")["allocated_peak"] - start
        optimizer.step()
        del output
    expected = 4 * depth * unit / n
    assert abs(held() - before - expected) < 0.1 * expected, (held() - before, expected)
    assert forward < 2.2 * unit, (forward, unit)  # as it comes from all ranks, and as it is computed with
    # The unit of which gradients come; the next, as it comes and whole, and this rank's part of it; a gradient and its
    # copy to be sent; the gradients of parts.
    predicted = (5 + 1 / n) * unit + depth * unit / n
    assert abs(highest - predicted) < 0.1 * predicted, (highest, predicted)


def is_told(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    """Methods of modules."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1))
    whole = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in whole.values():
        dist.broadcast(p, 0)
    for name, p in model.named_parameters():
        p.data.copy_(whole[name])
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    first = model[0]
    assert type(first).__name__ == "FSDPLinear" and isinstance(first, nn.Linear)
    assert isinstance(first.weight, DTensor) and first.weight.placements == (Shard(0),)
    handle = first.unshard(async_op=True)
    handle.wait()
    assert type(first.weight) is ts.Tensor and bool((first.weight == whole["0.weight"]).all())
    first.reshard()
    assert isinstance(first.weight, DTensor)
    model[0].set_modules_to_forward_prefetch([model[1], model[2]])
    model[2].set_modules_to_backward_prefetch([model[1], model[0]])
    model.set_reshard_after_backward(False)
    model(ts.ones(2, 4)).sum().backward()
    assert all(group.is_whole for layer in model for group in layer._groups())
    model.set_reshard_after_backward(True)
    model.set_gradient_divide_factor(1.0)
    for layer in model:
        layer.set_gradient_divide_factor(1.0)
    model.zero_grad()
    model(ts.ones(2, 4)).sum().backward()
    assert not any(group.is_whole for group in model._groups(recurse=True))
    found = model[2].bias.grad.full_tensor().item()
    assert found == 2.0 * n, found

    with ts.no_grad():
        model(ts.ones(2, 4))
    assert all(isinstance(p, DTensor) for p in model.parameters())
    first.unshard()
    assert all(isinstance(p, DTensor) for p in model.state_dict().values())
    model(ts.ones(2, 4))
    state = {name: p.clone() for name, p in model.state_dict().items()}
    model.load_state_dict({name: p * 2 for name, p in state.items()})
    assert all(bool((p.full_tensor() == 2 * state[name].full_tensor()).all()) for name, p in model.named_parameters())

    class Twice(nn.Linear):
        def twice(self, z: ts.Tensor) -> ts.Tensor:
            return nn.functional.linear(z, self.weight) * 2

    layer = fully_shard(Twice(2, 2))
    register_fsdp_forward_method(layer, "twice")
    layer.twice(ts.ones(1, 2)).sum().backward()
    assert layer.weight.grad.full_tensor().tolist() == [[2.0, 2.0], [2.0, 2.0]]
    both = fully_shard([nn.Linear(2, 2), nn.Linear(2, 2)])
    both[1](both[0](ts.ones(1, 2))).sum().backward()
    assert both[0].weight.grad is not None and not any(group.is_whole for m in both for group in m._groups())
    for given, words in ((nn.ModuleList(), "containers"), (layer, "already")):
        try:
            fully_shard(given)
        except ValueError as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)


def crosses(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    """Blocks that are cut over one dim of a mesh by tensor parallelism, and divided over the other."""
    if n != 4:
        return
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for frees in (True, False):
        alone, shared = Net(16), Net(16)
        trained(alone, x, y, steps=10)
        for block in shared.blocks:
            parallelize_module(block, mesh["tp"], {"one": ColwiseParallel(), "two": RowwiseParallel()})
            fully_shard(block, mesh=mesh["dp"], reshard_after_forward=frees)
        fully_shard(shared, mesh=mesh["dp"])
        weights = shared.blocks[0].one.weight, shared.blocks[0].two.weight
        assert [w.placements for w in weights] == [(_StridedShard(0, split_factor=2), Shard(0)), (Shard(0), Shard(1))]
        batch = slice(mesh.get_local_rank("dp"), None, 2)
        trained(shared, x[batch], y[batch], weight=2, steps=10)
        assert furthest(alone, shared) < 1e-5, furthest(alone, shared)
        assert not any(group.is_whole for group in shared._groups(recurse=True))
    folder = [tempfile.mkdtemp() if me == 0 else None]
    dist.broadcast_object_list(folder)
    checkpoint.save({"model": shared}, checkpoint_id=folder[0])
    plain = Net(16)
    checkpoint.load({"model": plain}, checkpoint_id=folder[0])
    assert max((p - q).abs().max().item() for p, q in zip(plain.parameters(), alone.parameters(), strict=True)) < 1e-5
    block = parallelize_module(Block(16), mesh["tp"], {"one": ColwiseParallel()})
    try:
        fully_shard(block, mesh=dist.init_device_mesh("cpu", (4,)))
    except ValueError as error:
        assert "expected a part of the mesh" in str(error), error
    else:
        raise AssertionError("meshes that do not belong together were taken")


def recovers(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    """An error in forward leaves nothing behind."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    for _ in range(2):
        try:
            model(ts.ones(1, 3))
        except RuntimeError:
            model.reset_iter_state()
        assert not any(group.is_whole for group in model._groups(recurse=True))
        model(ts.ones(1, 4)).sum().backward()
    folder = [tempfile.mkdtemp() if me == 0 else None]
    dist.broadcast_object_list(folder)
    path = Path(folder[0]) / "state"
    whole = {name: p.full_tensor() for name, p in model.state_dict().items()}
    checkpoint.save({"model": model}, checkpoint_id=path)
    with ts.no_grad():
        for p in model.parameters():
            p.zero_()
    checkpoint.load({"model": model}, checkpoint_id=path)
    assert all(bool((p.full_tensor() == whole[name]).all()) for name, p in model.named_parameters())


if __name__ == "__main__":
    main()
