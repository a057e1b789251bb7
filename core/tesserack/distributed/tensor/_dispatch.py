"""How an operator on DTensors runs: its rule chooses placements, tensors are brought there, ranks compute parts."""

from __future__ import annotations

import itertools
import math
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.aten.modes import within_composite
from tesserack.distributed._world import at_end
from tesserack.distributed.tensor._api import DTensor, answers, wrapped
from tesserack.distributed.tensor._call import COMPUTE, HANDLERS, NOTED, Call, Strategy, cost, rule_of
from tesserack.distributed.tensor._redistribute import redistribute_local
from tesserack.distributed.tensor._spec import DTensorSpec, TensorMeta
from tesserack.distributed.tensor.placement_types import Placement, Replicate, Shard

__all__ = ["Plan", "dispatch", "fallbacks", "forget_plans", "implicit", "leaves_of", "local_as", "rebuilt"]

R = Replicate()
_fallbacks: Counter[str] = Counter()
_plans: dict[Any, Plan] = {}
_MOST_PLANS = 20_000


class _State(threading.local):
    replicates = 0  # within implicit_replication
    loss = 0  # within loss_parallel


implicit = _State()
_LOSSES = ("nll_loss", "cross_entropy", "log_softmax")


def fallbacks() -> dict[str, int]:
    """How often operators without a sharding rule had their arguments brought together whole on every rank."""
    return dict(_fallbacks)


def forget_plans() -> None:
    """Plan anew: rules have changed."""
    _plans.clear()


class Plan:
    """What is known of calls alike: placements that the inputs are brought to, and the outputs' specs, none where they
    are replicated and of the shape that comes."""

    def __init__(self, call: Call, outs: Sequence[DTensorSpec | None], fallback: bool) -> None:
        self.call, self.outs, self.fallback = call, outs, fallback
        self.name, self.mesh, self.written = call.name, call.mesh, call.written
        self.targets = [tuple(t) for t in call.targets]
        self.compute = None if fallback else COMPUTE.get(call.name, COMPUTE.get(call.name.partition(".")[0]))
        self.moves = any(t != s.placements for t, s in zip(self.targets, call.specs, strict=True))
        self.placed = [tuple(p) for p in call.placed]


def dispatch(func: Any, args: Any, kwargs: Any, whole: bool = True) -> Any:
    """What ``__torch_dispatch__`` of a DTensor answers; by its rule alone unless ``whole``."""
    base = func._packet.__name__
    handled = HANDLERS.get(base) if whole else None
    if handled is not None:
        return handled(func, args, kwargs)
    leaves: list[Tensor] = []
    key: list[Any] = [func]
    _describe(args, key, leaves)
    for word, value in kwargs.items():
        key.append(word)
        _describe((value,), key, leaves)
    mesh = next(x._spec.mesh for x in leaves if isinstance(x, DTensor))
    if base in NOTED:
        key.append(tuple(x.__dict__.get("_note") for x in leaves))
    plainly = any(type(x) is not DTensor or x._spec.mesh is not mesh for x in leaves)
    if plainly:
        if _of_numbers(func, args, leaves):
            return func(*rebuilt(args, iter(map(_whole, leaves))), **rebuilt(kwargs, iter(())))
        leaves = [_as_dtensor(func, x, mesh) for x in leaves]
    specs = [x._spec for x in leaves]  # type: ignore[attr-defined]
    # Meshes that are equal may be of worlds that are gone, whose groups are.
    known = (id(mesh), tuple(key), tuple(specs))
    try:
        plan = _plans.get(known)
    except TypeError:  # something that has no hash
        plan, known = None, ()  # type: ignore[assignment]
    if plan is None:
        plan = _planned(func, args, kwargs, leaves, mesh)
        if known:
            if len(_plans) >= _MOST_PLANS:
                _plans.clear()
            _plans[known] = plan
    return _run(plan, func, args, kwargs, leaves)  # type: ignore[arg-type]


def _describe(values: Any, key: list[Any], leaves: list[Tensor]) -> None:
    """What a plan depends on, and the tensors, in order."""
    for value in values:
        if isinstance(value, Tensor):
            leaves.append(value)
            key.append(None)
        elif isinstance(value, (list, tuple)):
            key.append(len(value))
            _describe(value, key, leaves)
        else:
            key.append((type(value), value))


def leaves_of(values: Any) -> Iterator[Tensor]:
    """The tensors among arguments, in order."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from leaves_of(value)


def rebuilt(value: Any, leaves: Iterator[Any]) -> Any:
    """Arguments with each tensor (or spec) replaced by the next of ``leaves``."""
    if isinstance(value, (Tensor, DTensorSpec)):
        return next(leaves)
    if isinstance(value, (list, tuple)):
        return type(value)([rebuilt(item, leaves) for item in value])
    if isinstance(value, dict):
        return {word: rebuilt(item, leaves) for word, item in value.items()}
    return value


# --- tensors that are none of this mesh ------------------------------------------------------------------------------


def _whole(x: Tensor) -> Tensor:
    return x.full_tensor() if isinstance(x, DTensor) else x


def _of_numbers(func: Any, args: Any, leaves: list[Tensor]) -> bool:
    """Whether a plain tensor is written to, and DTensors are but numbers, which every rank can have."""
    if not func._schema.is_mutable or type(args[0]) is DTensor or not isinstance(args[0], Tensor):
        return False
    return all(x.ndim == 0 for x in leaves if isinstance(x, DTensor))


def _as_dtensor(func: Any, x: Tensor, mesh: Any) -> DTensor:
    if isinstance(x, DTensor):
        if x._spec.mesh is mesh or x._spec.mesh == mesh:
            return x
        if x.ndim == 0:
            return _replicated(x.full_tensor(), mesh)
        raise RuntimeError(
            f"{func}: expected DTensors of one mesh, got {mesh} and {x._spec.mesh}; redistribute works within a mesh, "
            "so take to_local() of one and from_local() on the other's mesh"
        )
    # What backward and composed operators make (zeros for what had no gradient, a mask) is the same on every rank.
    if not within_composite():
        check_mixed(func, [x])
    return _replicated(x, mesh)


def check_mixed(name: Any, tensors: Sequence[Tensor]) -> None:
    """``RuntimeError`` for plain tensors, but for numbers, beside DTensors in a call of the user's."""
    if implicit.replicates or _native._current_run() >= 0:
        return
    if implicit.loss and any(word in str(name) for word in _LOSSES):
        return
    for x in tensors:
        if not isinstance(x, DTensor) and x.numel() != 1:
            raise RuntimeError(
                f"{name}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before "
                f"calling distributed operators! (a plain tensor of shape {tuple(x.shape)}; try distribute_tensor, "
                "DTensor.from_local or implicit_replication())"
            )


def _replicated(x: Tensor, mesh: Any) -> DTensor:
    meta = TensorMeta(tuple(x.shape), tuple(x.stride()), x.dtype)
    return wrapped(x.detach(), DTensorSpec(mesh, (R,) * mesh.ndim, meta))


# --- planning --------------------------------------------------------------------------------------------------------


def _planned(func: Any, args: Any, kwargs: Any, leaves: list[Tensor], mesh: Any) -> Plan:
    specs = [x._spec for x in leaves]  # type: ignore[attr-defined]
    feed = iter(specs)
    call = Call(func.__name__.removesuffix(".default"), rebuilt(args, feed), rebuilt(kwargs, feed), specs, mesh)
    call.written = _written(func, args, kwargs)
    call.notes = [x.__dict__.get("_note") for x in leaves]
    found = rule_of(call.name)
    if found is not None:
        call.outs = _outlines(func, args, kwargs, specs)
    for mesh_dim in range(mesh.ndim):
        chosen = None if found is None else _chosen(call, found(call, mesh_dim), mesh_dim)
        if chosen is None:
            return _replicating(call)
        outputs = chosen.outputs * len(call.outs) if len(chosen.outputs) == 1 else chosen.outputs
        if not call.placed:
            call.placed = [[] for _ in outputs]
        for placed, placement in zip(call.placed, outputs, strict=True):
            placed.append(placement)
        for targets, placement in zip(call.targets, chosen.inputs, strict=True):
            targets.append(placement)
    outs = [_out_spec(mesh, placed, out) for placed, out in zip(call.placed, call.outs, strict=True)]
    return Plan(call, outs, fallback=False)


def _replicating(call: Call) -> Plan:
    call.targets = [[R] * call.mesh.ndim for _ in call.specs]
    call.placed = []
    return Plan(call, [], fallback=any(not s.is_replicated() for s in call.specs))


def _written(func: Any, args: Any, kwargs: Any) -> tuple[int, ...]:
    """Which of the tensors the operator writes to."""
    schema = func._schema
    if not schema.is_mutable:
        return ()
    found: list[int] = []
    index = 0
    for argument, value in itertools.chain(
        zip(schema.arguments, args, strict=False), ((a, kwargs[a.name]) for a in schema.arguments if a.name in kwargs)
    ):
        count = sum(1 for _ in leaves_of((value,)))
        if argument.is_write:
            found += range(index, index + count)
        index += count
    return tuple(found)


def _outlines(func: Any, args: Any, kwargs: Any, specs: list[DTensorSpec]) -> list[Any]:
    """The whole results as tensors without memory."""
    feed = (ts.empty_strided(s.shape, s.stride, dtype=s.dtype, device="meta") for s in specs)
    placed = {word: value for word, value in kwargs.items() if word not in ("device", "generator")}
    if "device" in kwargs:
        placed["device"] = ts.device("meta")
    result = func(*rebuilt(args, feed), **rebuilt(placed, feed))
    return [result] if isinstance(result, Tensor) else [*leaves_of(result or ())]


def _out_spec(mesh: Any, placed: Sequence[Placement], out: Tensor) -> DTensorSpec:
    return DTensorSpec(mesh, tuple(placed), TensorMeta(tuple(out.shape), tuple(out.stride()), out.dtype))


def _chosen(call: Call, strategies: Any, mesh_dim: int) -> Strategy | None:
    """The cheapest, and of those as cheap the first; everything replicated is one more."""
    best, least = None, math.inf
    for strategy in itertools.chain(strategies, [call.all(R, R)]):
        if any(strategy.inputs[k] != call.now(k, mesh_dim) for k in call.written):
            continue  # what is written to stays where it is
        if not _fits(call, strategy):
            continue
        price = sum(cost(s, mesh_dim, t) for s, t in zip(call.specs, strategy.inputs, strict=True))
        if price < least:
            best, least = strategy, price
    return best


def _fits(call: Call, strategy: Strategy) -> bool:
    return all(
        not isinstance(p, Shard) or p.dim < len(s.shape) for p, s in zip(strategy.inputs, call.specs, strict=True)
    )


# --- running ---------------------------------------------------------------------------------------------------------


def local_as(x: DTensor, placements: tuple[Placement, ...]) -> Tensor:
    """This rank's memory of a DTensor as other placements have it."""
    spec = x._spec
    if spec.placements == placements:
        return x._local_tensor
    return redistribute_local(x._local_tensor, spec, placements)


def _run(plan: Plan, func: Any, args: Any, kwargs: Any, leaves: list[DTensor]) -> Any:
    if plan.written:
        _check_written(func, plan, leaves)
    if plan.fallback:
        _note(plan)
    parts = [local_as(x, target) for x, target in zip(leaves, plan.targets, strict=True)]
    if plan.fallback and plan.written:
        return _written_back(plan, func, args, kwargs, leaves, parts)
    if plan.mesh.get_coordinate() is None:
        return leaves[plan.written[0]] if plan.written else _absent(plan)
    feed = iter(parts)
    given, words = rebuilt(args, feed), rebuilt(kwargs, feed)
    result = func(*given, **words) if plan.compute is None else plan.compute(plan, func, given, words)
    if plan.written:
        written = [leaves[k] for k in plan.written]
        return written[0] if len(written) == 1 else tuple(written)
    moved = _is_view(func) and (plan.moves or any(x.__dict__.get("_moved") for x in leaves))
    return _wrapped(result, plan, moved)


def _is_view(func: Any) -> bool:
    found = func.__dict__.get("_dtensor_view")
    if found is None:
        found = func._dtensor_view = any(
            r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns
        )
    return bool(found)


def _wrapped(result: Any, plan: Plan, moved: bool) -> Any:
    specs = iter(plan.outs)

    def one(value: Any) -> Any:
        if isinstance(value, Tensor):
            spec = next(specs, None)
            made = wrapped(value, spec if spec is not None else _out_spec(plan.mesh, [R] * plan.mesh.ndim, value))
            if moved:
                made._moved = True
            return made
        if isinstance(value, (list, tuple)):
            return type(value)(map(one, value))
        return value

    return one(result)


def _absent(plan: Plan) -> Any:
    """On a rank outside of the mesh: results of the same outline, without elements."""
    if not plan.outs:
        raise RuntimeError(f"{plan.name}: expected a rank of {plan.mesh}, got rank {plan.mesh.get_rank()}")
    made = [wrapped(ts.empty(0, dtype=spec.dtype), spec) for spec in plan.outs if spec is not None]
    return made[0] if len(made) == 1 else tuple(made)


# These change the shape that the wrapper has.
_RESHAPING = frozenset(
    {"t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "as_strided_", "resize_", "set_"}
)


def _check_written(func: Any, plan: Plan, leaves: list[DTensor]) -> None:
    if plan.name.partition(".")[0] in _RESHAPING:
        raise RuntimeError(f"{func}: a DTensor's shape cannot be changed in place; try {func._packet.__name__[:-1]}")
    for k in plan.written:
        if leaves[k].__dict__.get("_moved"):
            raise RuntimeError(
                f"{func}: expected to write to memory of the original, got a view that had to be redistributed "
                "from it; write to a DTensor that is replicated, or compute the result out of place (where, cat)"
            )


def _level_of_user() -> int:
    """How far up the innermost line is that is not of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tesserack":
        frame, level = frame.f_back, level + 1
    return level - 1


def _note(plan: Plan) -> None:
    name = f"aten.{plan.name}"
    _fallbacks[name] += 1
    if _fallbacks[name] == 1:
        specs = ", ".join(f"{tuple(s.shape)} {s.placements}" for s in plan.call.specs)
        warnings.warn(
            f"{name}: no sharding rule for {specs}; its arguments are brought together whole on every rank (told once; "
            "counted in tesserack.distributed.tensor.debug.fallbacks())",
            stacklevel=_level_of_user(),
        )


def _written_back(plan: Plan, func: Any, args: Any, kwargs: Any, leaves: list[DTensor], parts: list[Tensor]) -> Any:
    """An operator that writes, done on whole copies, of which each rank keeps its part."""
    for k in plan.written:
        if parts[k] is leaves[k]._local_tensor:
            continue
        parts[k] = parts[k].clone()
    feed = iter(parts)
    func(*rebuilt(args, feed), **rebuilt(kwargs, feed))
    for k in plan.written:
        if parts[k] is leaves[k]._local_tensor:
            continue
        spec = leaves[k]._spec
        if tuple(parts[k].shape) != tuple(spec.shape):
            raise RuntimeError(f"{func}: expected the shape {tuple(spec.shape)} to stay, got {tuple(parts[k].shape)}")
        whole = spec.placed((R,) * spec.mesh.ndim)
        leaves[k]._local_tensor.copy_(redistribute_local(parts[k], whole, spec.placements))
    written = [leaves[k] for k in plan.written]
    return written[0] if len(written) == 1 else tuple(written)


at_end.append(forget_plans)  # which keep meshes, and those groups
answers.update(dispatch=dispatch, check_mixed=check_mixed)
