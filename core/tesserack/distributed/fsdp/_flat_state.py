"""State dicts of models with flat units: whole tensors under the model's names, divided ones, or flat parts."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _world
from tesserack.distributed.fsdp._prefixes import FSDP_PREFIX, clean_name, replace_prefix
from tesserack.distributed.fsdp._ranks import chunk_sizes
from tesserack.distributed.fsdp.api import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictSettings,
    StateDictType,
)

__all__ = ["divided_tensor", "get_type", "install", "set_type", "whole_tensor"]

_CONFIGS: dict[StateDictType, tuple[type, type]] = {
    StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
    StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
    StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig),
}


def _units(module: Any) -> list[Any]:
    return [each for each in module.modules() if "_fsdp_unit" in each.__dict__ and hasattr(each, "_settings")]


def set_type(module: Any, kind: StateDictType, config: Any, optim_config: Any) -> StateDictSettings:
    """Say which kind of state dicts the units of a model make."""
    before = get_type(module)
    own, own_optim = _CONFIGS[kind]
    config, optim_config = config or own(), optim_config or own_optim()
    for given, wanted in ((config, own), (optim_config, own_optim)):
        if type(given) is not wanted:
            raise RuntimeError(f"Expected state_dict_config of type {wanted} but got {type(given)}")
    for unit in _units(module):
        unit._settings = StateDictSettings(kind, config, optim_config)
    return before


def get_type(module: Any) -> StateDictSettings:
    """Which kind of state dicts the units of a model make."""
    units = _units(module)
    if not units:
        raise AssertionError("state_dict_type: expected a model with FullyShardedDataParallel in it, found none")
    first: StateDictSettings = units[0]._settings
    if any(unit._settings != first for unit in units):
        raise AssertionError("All FSDP modules must have the same state dict settings")
    return first


def divided_tensor(whole: Tensor, ranks: Any) -> Any:
    """A whole tensor as a ``DTensor`` over the ranks that divide it; itself where none do or it has no dims."""
    if ranks.parts == 1 or not whole.ndim:
        return whole.clone()
    from tesserack.distributed.device_mesh import DeviceMesh
    from tesserack.distributed.tensor import DTensor, Shard

    mesh = DeviceMesh.from_group(ranks.shard, whole.device.type)
    mine = whole.split(chunk_sizes(whole.shape[0], ranks.parts), 0)[ranks.part].clone()
    return DTensor.from_local(mine, mesh, [Shard(0)], shape=tuple(whole.shape), stride=whole.contiguous().stride())


def whole_tensor(value: Any) -> Any:
    """A tensor that may be divided, whole."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def install(unit: Any) -> None:
    """Have a unit's part of state dicts made and read so."""
    unit.register_state_dict_pre_hook(_before_saving)
    unit._register_state_dict_hook(_after_saving)
    unit.register_load_state_dict_pre_hook(_before_loading)
    unit.register_load_state_dict_post_hook(_after_loading)


def _before_saving(module: Any, prefix: str, keep_vars: bool) -> None:
    if _gathers(module):
        for group in module._flat_groups():
            group.expose()


def _after_saving(module: Any, state_dict: dict[str, Any], prefix: str, metadata: Any) -> Any:
    settings = module._settings
    if _gathers(module):
        whole = settings.state_dict_type is StateDictType.FULL_STATE_DICT
        for group in module._flat_groups():
            names = {id(m): n for n, m in module._fsdp_wrapped_module.named_modules()}
            for places in group.places:
                for owner, name in places:
                    below = f"{names[id(owner)]}." if names[id(owner)] else ""
                    key = f"{prefix}{FSDP_PREFIX}{below}{name}"
                    key = key if key in state_dict else f"{prefix}{FSDP_PREFIX}{clean_name(below + name)}"
                    if key in state_dict:
                        value = state_dict[key].detach()
                        state_dict[key] = value.clone() if whole else divided_tensor(value, group.layout.ranks)
            group.hide(write_back=False)
        _place(module, state_dict, prefix, settings.state_dict_config)
    replace_prefix(state_dict, prefix + FSDP_PREFIX, prefix)
    return state_dict


def _place(module: Any, state_dict: dict[str, Any], prefix: str, config: Any) -> None:
    keys = [key for key in state_dict if key.startswith(prefix)]
    if getattr(config, "rank0_only", False) and _world.get_rank() != 0:
        for key in keys:
            del state_dict[key]
        return
    if config.offload_to_cpu:
        for key in keys:
            if isinstance(state_dict[key], Tensor):
                state_dict[key] = state_dict[key].cpu()


def _gathers(module: Any) -> bool:
    """Whether state dicts have whole values that are not there yet."""
    return module._settings.state_dict_type is not StateDictType.LOCAL_STATE_DICT and not module._exposing


def _before_loading(module: Any, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
    if _gathers(module):
        for group in module._flat_groups():
            group.expose()
        with ts.no_grad():
            for key in list(state_dict):
                if key.startswith(prefix):
                    state_dict[key] = whole_tensor(state_dict[key])
    replace_prefix(state_dict, prefix, prefix + FSDP_PREFIX)


def _after_loading(module: Any, incompatible: Any) -> None:
    if _gathers(module):
        for group in module._flat_groups():
            group.hide(write_back=True)
    for names in incompatible:
        names[:] = [name.replace(FSDP_PREFIX, "") for name in names]
