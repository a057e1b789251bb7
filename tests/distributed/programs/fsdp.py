"""Models under ``FullyShardedDataParallel`` follow the same on one rank and the whole batch. Runs on each rank."""

import copy
import functools

import tesserack as ts
from nets import WIDTH, Block, Net, alike, data, trained
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed import fsdp
from tesserack.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from tesserack.distributed.fsdp import FullyShardedDataParallel as FSDP
from tesserack.distributed.fsdp.wrap import (
    CustomPolicy,
    ModuleWrapPolicy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)


def whole(model: FSDP) -> dict[str, ts.Tensor]:
    with FSDP.summon_full_params(model, writeback=False):
        return {name: p.detach().clone() for name, p in model.named_parameters()}


def furthest(alone: nn.Module, shared: FSDP) -> float:
    found = whole(shared)
    expected = dict(alone.named_parameters())
    assert list(found) == list(expected), (list(found), list(expected))
    return max((found[name] - p).abs().max().item() for name, p in expected.items())


def main() -> None:
    dist.init_process_group()
    n, me = dist.get_world_size(), dist.get_rank()
    x, y = data()
    mine = slice(me, None, n)
    alone = Net()
    optimizer = trained(alone, x, y, steps=8)
    briefly = copy.deepcopy(alone)
    trained(alone, x, y, steps=42, optimizer=optimizer)
    blocks = ModuleWrapPolicy({Block})
    configurations: list[dict] = [
        {},
        {"auto_wrap_policy": blocks},
        {"auto_wrap_policy": blocks, "use_orig_params": True},
        {"auto_wrap_policy": blocks, "sharding_strategy": fsdp.ShardingStrategy.SHARD_GRAD_OP},
        {"auto_wrap_policy": blocks, "sharding_strategy": fsdp.ShardingStrategy.NO_SHARD, "use_orig_params": True},
        {"auto_wrap_policy": functools.partial(size_based_auto_wrap_policy, min_num_params=300)},
        {"auto_wrap_policy": functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})},
        {"auto_wrap_policy": CustomPolicy(lambda m: isinstance(m, Block) and {"cpu_offload": fsdp.CPUOffload(True)})},
        {"auto_wrap_policy": blocks, "backward_prefetch": None, "sync_module_states": True},
        {"auto_wrap_policy": blocks, "backward_prefetch": fsdp.BackwardPrefetch.BACKWARD_POST, "use_orig_params": True},
    ]
    for number, options in enumerate(configurations):
        shared = FSDP(Net(), **options)
        long = number in (1, 2)
        trained(shared, x[mine], y[mine], weight=n, steps=50 if long else 8)
        distance = furthest(alone if long else briefly, shared)
        assert distance < 1e-5, (options, distance)
    for check in (
        accumulates_and_clips,
        freezes,
        mixes,
        checkpoints,
        hybrids,
        begins_on_meta,
        saves,
        summons,
        converts,
        frees,
        fails_in_words,
    ):
        check(x, y, n, me)
    dist.destroy_process_group()


def accumulates_and_clips(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    mine = slice(me, None, n)
    for options in ({}, {"use_orig_params": True}):
        alone, shared = Net(), FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), **options)
        trained(alone, x, y, clip=0.05, steps=10)
        trained(shared, x[mine], y[mine], n, parts=3, clip=0.05, steps=10)
        assert furthest(alone, shared) < 1e-5


def freezes(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    mine = slice(me, None, n)
    for whole_block in (True, False):
        models = Net(), Net()
        for model in models:
            (model.blocks[1] if whole_block else model.blocks[1].one).requires_grad_(False)
        shared = FSDP(models[1], auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
        trained(models[0], x, y, steps=10)
        trained(shared, x[mine], y[mine], n, steps=10)
        assert furthest(models[0], shared) < 1e-5
        assert not any(group.is_whole for unit in FSDP.fsdp_modules(shared) for group in unit._flat_groups())


class Mixed(nn.Module):
    """Says in which dtype it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 1)
        self.seen: list[ts.dtype] = []

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        y = self.one(x)
        self.seen += [x.dtype, y.dtype]
        return self.two(self.norm(y).relu())


def mixes(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    ts.manual_seed(0)
    policy = fsdp.MixedPrecision(param_dtype=ts.bfloat16, reduce_dtype=ts.float32)
    shared = FSDP(Mixed(), mixed_precision=policy, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}))
    optimizer = ts.optim.SGD(shared.parameters(), lr=0.05)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = (shared(ts.ones(4, WIDTH) * ts.arange(4.0)[:, None]).float().squeeze(1) - ts.arange(4.0)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0], losses
    module = shared.module
    assert (
        set(module.seen[::2]) == {ts.bfloat16} == set(module.seen)
        and module.norm.module.running_mean.dtype == ts.float32
    )
    assert all(p.dtype == p.grad.dtype == ts.float32 for p in shared.parameters())


def checkpoints(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    mine = slice(me, None, n)
    alone = Net()
    trained(alone, x, y, steps=10)
    for inside in (True, False):
        model = Net()
        if inside:  # units around wrappers
            apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Block))
            shared = FSDP(model, auto_wrap_policy=lambda_policy(), use_orig_params=True)
        else:
            shared = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
            apply_activation_checkpointing(shared, check_fn=lambda m: isinstance(m, FSDP))
        trained(shared, x[mine], y[mine], n, steps=10)
        found = {name.replace("_checkpoint_wrapped_module.", ""): value for name, value in whole(shared).items()}
        assert max((found[k] - p).abs().max().item() for k, p in alone.named_parameters()) < 1e-5
        assert list(shared.state_dict()) == list(alone.state_dict())


def lambda_policy() -> CustomPolicy:
    return CustomPolicy(lambda m: "CheckpointWrapper" in type(m).__name__)


def hybrids(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    if n % 2:
        return
    mine = slice(me, None, n)
    mesh = dist.init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("copies", "parts"))
    alone = Net()
    trained(alone, x, y, steps=10)
    for strategy in (fsdp.ShardingStrategy.HYBRID_SHARD, fsdp.ShardingStrategy._HYBRID_SHARD_ZERO2):
        shared = FSDP(Net(), device_mesh=mesh, sharding_strategy=strategy, auto_wrap_policy=ModuleWrapPolicy({Block}))
        trained(shared, x[mine], y[mine], n, steps=10)
        assert furthest(alone, shared) < 1e-5


def begins_on_meta(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    with ts.device("meta"):
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    shared = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), sync_module_states=True)
    assert all(not p.is_meta for p in shared.parameters())
    found = whole(shared)
    assert found["0.weight"].abs().max() > 0.1 and alike(found["0.weight"], n)
    given = FSDP(nn.Linear(2, 2).to("meta"), param_init_fn=lambda m: nn.init.ones_(m.to_empty(device="cpu").weight))
    assert whole(given)["weight"].tolist() == [[1.0, 1.0], [1.0, 1.0]]


def saves(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    mine = slice(me, None, n)
    for options in ({}, {"use_orig_params": True}):
        alone, shared = Net(), FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), **options)
        optimizers = trained(alone, x, y, steps=5), trained(shared, x[mine], y[mine], n, steps=5)
        state, expected = shared.state_dict(), alone.state_dict()
        assert list(state) == list(expected)
        assert max((state[k] - v).abs().max().item() for k, v in expected.items()) < 1e-5
        again = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=not options)
        assert str(again.load_state_dict(expected)) == "<All keys matched successfully>"
        assert furthest(alone, again) == 0.0
        names = {name: k for k, (name, _) in enumerate(alone.named_parameters())}
        of_alone = optimizers[0].state_dict()
        for settings in ((fsdp.StateDictType.FULL_STATE_DICT, None, None), first_alone()):
            with FSDP.state_dict_type(shared, *settings):
                whole_state = FSDP.optim_state_dict(shared, optimizers[1])
                empty = settings[1] is not None and me != 0
                assert bool(shared.state_dict()) != empty and bool(whole_state) != empty
                for name, own in whole_state.get("state", {}).items():
                    for key, value in of_alone["state"][names[name]].items():
                        assert (own[key] - value).abs().max().item() < 1e-5, (name, key)
                # Into another wrapping of the model, whose training goes on as the one process's does.
                with FSDP.state_dict_type(again, *settings):
                    fresh = ts.optim.AdamW(again.parameters(), lr=0.5)
                    fresh.load_state_dict(FSDP.optim_state_dict_to_load(again, fresh, whole_state))
        trained(alone, x, y, steps=5, optimizer=optimizers[0])
        trained(again, x[mine], y[mine], n, steps=5, optimizer=fresh)
        assert furthest(alone, again) < 1e-5
        with FSDP.state_dict_type(shared, fsdp.StateDictType.LOCAL_STATE_DICT):
            local = {key: value.clone() for key, value in shared.state_dict().items()}
            before = whole(shared)
            with ts.no_grad(), FSDP.summon_full_params(shared):
                for parameter in shared.parameters():
                    parameter.zero_()
            assert all(not value.any() for value in whole(shared).values())
            shared.load_state_dict(local)
        assert all(bool((value == before[name]).all()) for name, value in whole(shared).items())


def first_alone() -> tuple:
    given = fsdp.FullStateDictConfig(True, True), fsdp.FullOptimStateDictConfig(True, True)
    return fsdp.StateDictType.FULL_STATE_DICT, *given


def summons(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    mine = slice(me, None, n)
    alone, shared = Net(), FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
    nn.functional.cross_entropy(alone(x), y, reduction="sum").backward()
    (nn.functional.cross_entropy(shared(x[mine]), y[mine], reduction="sum") * n).backward()
    expected = {name: p.grad for name, p in alone.named_parameters()}
    with FSDP.summon_full_params(shared, with_grads=True):
        for name, p in shared.named_parameters():
            assert (p.grad - expected[name]).abs().max().item() < 1e-4, name
            p.grad.mul_(2.0)
    with FSDP.summon_full_params(shared, writeback=False, with_grads=True):
        assert all((p.grad - 2 * expected[name]).abs().max().item() < 1e-4 for name, p in shared.named_parameters())
    before = whole(shared)
    with ts.no_grad(), FSDP.summon_full_params(shared, writeback=False):
        next(shared.parameters()).zero_()
    with FSDP.summon_full_params(shared, rank0_only=True, writeback=False, offload_to_cpu=True):
        shapes = [tuple(p.shape) for p in shared.parameters()]
        assert (shapes == [tuple(p.shape) for p in alone.parameters()]) == (me == 0 or n == 1), shapes
    if n > 1:
        assert all(bool((value == before[name]).all()) for name, value in whole(shared).items())
    assert len(FSDP.fsdp_modules(shared)) == 4 and FSDP.fsdp_modules(shared, root_only=True) == [shared]
    shared.apply(lambda m: nn.init.constant_(m.weight, 0.5) if isinstance(m, nn.Linear) else None)
    assert (whole(shared)["blocks.2.one.weight"] == 0.5).all()
    kept = Net()
    ignoring = FSDP(kept, ignored_modules=[kept.blocks[0]], ignored_states=None)
    assert kept.blocks[0].one.weight.shape == (17, WIDTH)
    trained(ignoring, x, y, steps=2)
    for use in (lambda: shared.register_comm_hook(None, print), lambda: FSDP(Net(), mixed_precision=low())):
        try:
            use()
        except NotImplementedError as error:
            assert "absent" in str(error)
        else:
            raise AssertionError("expected an error")


def converts(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    """Of another dtype, and trained on: the optimizer still has the parameters."""
    mine = slice(me, None, n)
    for options in ({}, {"use_orig_params": True}):
        alone, shared = Net(), FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), **options)
        optimizers = [ts.optim.SGD(model.parameters(), lr=0.1) for model in (alone, shared)]
        alone.double()
        shared.double()
        trained(alone, x, y, steps=3, optimizer=optimizers[0])
        trained(shared, x[mine], y[mine], n, steps=3, optimizer=optimizers[1])
        assert all(value.dtype == ts.float64 for value in whole(shared).values())
        assert furthest(alone, shared) < 1e-6


def low() -> fsdp.MixedPrecision:
    return fsdp.MixedPrecision(param_dtype=ts.bfloat16, keep_low_precision_grads=True)


def frees(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    """Between steps a rank holds its part of parameters, gradients and the optimizer's two; whole, two at most."""
    width, depth = 255, 6  # what parts take fits what the allocator gives
    unit = 4 * (width * width + width)

    def held() -> int:
        return ts.memory_stats("cpu")["allocated"]

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

        def forward(self, z: ts.Tensor) -> ts.Tensor:
            for layer in self.layers:
                z = layer(z).relu()
            return z.sum()

    before = held()
    shared = FSDP(Deep(), auto_wrap_policy=ModuleWrapPolicy({nn.Linear}))
    optimizer = ts.optim.Adam(shared.parameters(), lr=1e-3)
    inputs = ts.ones(1, width)
    for _ in range(3):
        optimizer.zero_grad()
        ts.reset_peak_memory_stats("cpu")
        start = held()
        shared(inputs).backward()
        highest = ts.memory_stats("cpu")["allocated_peak"] - start
        optimizer.step()
    expected = 4 * depth * unit / n
    assert abs(held() - before - expected) < 0.1 * expected, (held() - before, expected)
    # Whole: the unit of which gradients come, the next, a gradient and its copy to be reduced; gradients of parts.
    assert highest < 4 * unit * 1.1 + depth * unit / n, (highest, unit)


def fails_in_words(x: ts.Tensor, y: ts.Tensor, n: int, me: int) -> None:
    if n == 1:  # what is computed with is the parameter itself
        return
    model = FSDP(nn.Sequential(nn.Linear(2, 1)), auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), use_orig_params=True)
    optimizer = ts.optim.SGD(model.parameters(), lr=0.1)
    loss = model(ts.ones(1, 2, requires_grad=True)).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    assert bool(loss.isfinite())
    try:
        loss.backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    else:
        raise AssertionError("a parameter changed between forward and backward was not noticed")
    model.zero_grad()
    with ts.no_grad():  # the outermost stays whole after forward, but not what has changed since
        kept = FSDP(nn.Linear(2, 1))
        before = kept(ts.ones(1, 2))
        for parameter in kept.parameters():
            parameter.add_(1.0)
        assert abs((kept(ts.ones(1, 2)) - before).item() - 3.0) < 1e-5


if __name__ == "__main__":
    main()
