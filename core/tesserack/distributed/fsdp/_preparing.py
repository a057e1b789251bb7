"""What ``FullyShardedDataParallel`` does to a module before it divides its parameters."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _world
from tesserack.distributed.fsdp._places import Place
from tesserack.distributed.fsdp._ranks import Ranks
from tesserack.distributed.fsdp.api import MixedPrecision, ShardingStrategy
from tesserack.distributed.fsdp.wrap import CustomPolicy, ModuleWrapPolicy, _or_policy, _Policy, wrap_by
from tesserack.nn.modules.module import Module

__all__ = ["HYBRID", "auto_wrap", "ignored_by", "materialize", "move", "ranks_of"]

HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)


def ranks_of(strategy: ShardingStrategy, group: Any, mesh: Any) -> Ranks:
    """Whom parameters are divided over, and who has copies."""
    if strategy in HYBRID:
        if mesh is not None:
            if mesh.ndim != 2:
                raise ValueError(f"HYBRID_SHARD: expected a mesh of 2 dims, got {mesh}")
            return Ranks(mesh.get_group(1), mesh.get_group(0))
        if group is None:
            return Ranks(*_machine_groups())
        if not isinstance(group, (list, tuple)) or len(group) != 2:
            raise ValueError("HYBRID_SHARD: Expected process_group to be passed in as a tuple of two groups")
        return Ranks(*group)
    chosen = mesh.get_group() if mesh is not None else group if group is not None else _world.get_default_group()
    return Ranks(None, chosen) if strategy is ShardingStrategy.NO_SHARD else Ranks(chosen)


def _machine_groups() -> tuple[Any, Any]:
    """The ranks of this machine, and those with this rank's number on every machine."""
    size = _world.get_world_size()
    width = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    inner, _ = _world.new_subgroups_by_enumeration([list(range(k, k + width)) for k in range(0, size, width)])
    outer, _ = _world.new_subgroups_by_enumeration([list(range(k, size, width)) for k in range(width)])
    return inner, outer


def ignored_by(modules: Iterable[Module] | None, states: Iterable[Any] | None) -> tuple[set[Module], set[Any]]:
    """Modules and parameters that are left alone."""
    given = list(states or ())
    chosen = [*(modules or ()), *(s for s in given if isinstance(s, Module))]
    for module in chosen:
        if not isinstance(module, Module):
            raise TypeError(f"ignored_modules: expected modules, got {type(module).__name__}")
    found = {below for module in chosen for below in module.modules()}
    parameters = {p for module in chosen for p in module.parameters()} | {s for s in given if isinstance(s, Tensor)}
    return found, parameters


def auto_wrap(
    kind: type[Module],
    module: Module,
    policy: Any,
    ignored: set[Module],
    parameters: set[Any],
    options: dict[str, Any],
    mixed: MixedPrecision,
) -> None:
    """Wrap what a policy chooses below a module, by a class."""
    classes = tuple(mixed._module_classes_to_ignore)
    if mixed.param_dtype is not None and any(isinstance(m, classes) for m in module.modules()):
        plain = {"mixed_precision": None}
        for each in module.modules():
            if isinstance(each, classes):
                each._wrap_overrides = plain
                each.register_forward_pre_hook(_cast_up)
                each.register_forward_hook(functools.partial(_cast_down, mixed.param_dtype))
        policy = _with_classes(policy, classes, plain)
    for name, given in list(options.items()):
        if given is None:
            del options[name]
    wrap_by(module, policy, kind, ignored, parameters, options)


def _with_classes(policy: Any, classes: tuple[type, ...], overrides: dict[str, Any]) -> Any:
    """A policy that chooses modules of these classes too."""
    if not isinstance(policy, _Policy):
        own = functools.partial(_or_policy, policies=[policy, ModuleWrapPolicy(classes)])
        return own

    class Both(_Policy):
        def _run_policy(self, root_module: Module, ignored_modules: Any, root_kwargs: Any) -> Any:
            more = CustomPolicy(lambda m: dict(overrides) if isinstance(m, classes) else False)
            chosen = policy._run_policy(root_module, ignored_modules, root_kwargs)
            return {**chosen, **more._run_policy(root_module, ignored_modules, root_kwargs)}

    return Both()


def _cast_up(module: Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.float() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args)


def _cast_down(dtype: Any, module: Module, args: Any, output: Any) -> Any:
    return output.to(dtype) if isinstance(output, Tensor) and output.is_floating_point() else output


def materialize(places: dict[Any, list[Place]], init: Callable[[Module], Any] | None, device_id: Any) -> None:
    """Give parameters on the meta device memory and values."""
    owners = {module: None for p, own in places.items() if p.is_meta for module, _ in own}
    for module in owners:
        if init is not None:
            init(module)
            continue
        reset = getattr(module, "reset_parameters", None)
        if reset is None:
            raise ValueError(
                f"FullyShardedDataParallel: {type(module).__name__} has parameters on the meta device and no "
                "reset_parameters; pass param_init_fn"
            )
        module.to_empty(device=device_id if isinstance(device_id, (str, ts.device)) else "cpu", recurse=False)
        with ts.no_grad():
            reset()


def move(places: dict[Any, list[Place]], module: Module, device_id: Any) -> None:
    """Bring parameters and buffers to a device: a number is one of their own kind."""
    for tensor in (*places, *module.buffers()):
        device = ts.device(tensor.device.type, device_id) if isinstance(device_id, int) else ts.device(device_id)
        if isinstance(device_id, int) and tensor.device.type == "cpu":
            continue
        if tensor.device != device:
            tensor.data = tensor.data.to(device)
