"""State dicts of models and optimizers, whatever wraps them: under the model's own names, divided or whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tesserack as ts
from tesserack import Tensor, nn
from tesserack.distributed import _objects, _world
from tesserack.distributed.checkpoint._items import chunk_of, is_divided
from tesserack.distributed.fsdp import _flat_state
from tesserack.distributed.fsdp._prefixes import CHECKPOINT_PREFIX, FLAT_PARAM, FSDP_PREFIX, clean_name
from tesserack.distributed.fsdp.fully_sharded_data_parallel import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictType,
)
from tesserack.nn.modules._state_dict import IncompatibleKeys

__all__ = [
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]

StateDict = dict[str, Any]


@dataclass
class StateDictOptions:
    """How state dicts are made and taken.

    Args:
        full_state_dict: whole tensors instead of ``DTensor``s; with ``cpu_offload`` on the first rank alone.
        cpu_offload: in host memory.
        ignore_frozen_params: without parameters that need no gradient.
        keep_submodule_prefixes: with ``submodules``, whether names begin with the submodule's.
        strict: whether names must match when a model takes one.
        broadcast_from_rank0: with ``full_state_dict``, take what the first rank has.
        flatten_optimizer_state_dict: one dict with names like ``state.layer.weight.exp_avg``.
        dsd_fqn_modifiers: accepted, and has no effect.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"

    def __post_init__(self) -> None:
        if self.broadcast_from_rank0 and not self.full_state_dict:
            raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")


class _Wrapped:
    """A model, and its names without those of wrappers."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        kinds = nn.parallel.DistributedDataParallel, nn.parallel.DataParallel
        wrappers = [prefix for prefix, module in model.named_modules() if isinstance(module, kinds)]
        self._drop = [f"{prefix}.module." if prefix else "module." for prefix in wrappers]

    def clean(self, name: str) -> str:
        """A name without wrappers."""
        for prefix in self._drop:
            if name.startswith(prefix):
                name = prefix[: -len("module.")] + name[len(prefix) :]
        return clean_name(name)

    @property
    def is_flat(self) -> bool:
        """Whether there are flat units in the model."""
        return bool(FullyShardedDataParallel.fsdp_modules(self.model))

    def parameters(self, every_name: bool = False) -> dict[str, Any]:
        """By name without wrappers: each once, or under every name that it has."""
        named = self.model.named_parameters(remove_duplicate=not every_name)
        return {self.clean(name): p for name, p in named}


@contextlib.contextmanager
def _kind(wrapped: _Wrapped, options: StateDictOptions) -> Iterator[None]:
    """Have flat units make state dicts as the options say."""
    if not wrapped.is_flat:
        yield
        return
    if options.full_state_dict:
        first = options.cpu_offload and not options.broadcast_from_rank0
        kind: StateDictType = StateDictType.FULL_STATE_DICT
        config: Any = FullStateDictConfig(offload_to_cpu=options.cpu_offload, rank0_only=first)
        optim: Any = FullOptimStateDictConfig(offload_to_cpu=options.cpu_offload, rank0_only=first)
    else:
        kind = StateDictType.SHARDED_STATE_DICT
        config = ShardedStateDictConfig(offload_to_cpu=options.cpu_offload)
        optim = ShardedOptimStateDictConfig(offload_to_cpu=options.cpu_offload)
    with FullyShardedDataParallel.state_dict_type(wrapped.model, kind, config, optim):
        yield


def _is_first() -> bool:
    return not _world.is_initialized() or _world.get_rank() == 0


def _placed(value: Any, options: StateDictOptions) -> Any:
    """A value as the options say: whole, on the host. Collectives of all ranks."""
    if isinstance(value, Tensor):
        value = value.detach()
        if options.full_state_dict:
            value = _flat_state.whole_tensor(value)
        if options.cpu_offload:
            value = type(value)(value._local_tensor.cpu(), value._spec) if is_divided(value) else value.cpu()
        return value
    if isinstance(value, Mapping):
        return {key: _placed(each, options) for key, each in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_placed(each, options) for each in value)
    return value


def _for_this_rank(made: StateDict, options: StateDictOptions) -> StateDict:
    """All of it, or nothing where the first rank alone has it."""
    return made if not (options.full_state_dict and options.cpu_offload) or _is_first() else {}


# --- models -----------------------------------------------------------------------------------------------------------


def get_model_state_dict(
    model: nn.Module, *, submodules: set[nn.Module] | None = None, options: StateDictOptions | None = None
) -> StateDict:
    """A model's parameters and buffers under its own names: ``DTensor``s where it is divided, unless the options ask
    for whole ones. Every rank calls it. ``submodules`` takes these alone.

    >>> import tesserack as ts
    >>> list(get_model_state_dict(ts.nn.parallel.DataParallel(ts.nn.Linear(2, 1)).module))
    ['weight', 'bias']
    """
    options, wrapped = options or StateDictOptions(), _Wrapped(model)
    with _kind(wrapped, options):
        found = {wrapped.clean(name): value for name, value in model.state_dict().items()}
    if options.ignore_frozen_params:
        frozen = {name for name, p in wrapped.parameters(every_name=True).items() if not p.requires_grad}
        found = {name: value for name, value in found.items() if name not in frozen}
    found = {name: _placed(value, options) for name, value in found.items()}
    if submodules:
        found = _below(wrapped, found, submodules, options)
    return _for_this_rank(found, options)


def _below(
    wrapped: _Wrapped, found: StateDict, submodules: Iterable[nn.Module], options: StateDictOptions
) -> StateDict:
    prefixes = [
        f"{wrapped.clean(name)}." for name, module in wrapped.model.named_modules() if module in set(submodules)
    ]
    chosen = {}
    for name, value in found.items():
        for prefix in prefixes:
            if name.startswith(prefix):
                chosen[name if options.keep_submodule_prefixes else name[len(prefix) :]] = value
    return chosen


def set_model_state_dict(
    model: nn.Module, model_state_dict: Mapping[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Give a model what :func:`get_model_state_dict` gave, whole or divided, whatever wraps it now. With
    ``broadcast_from_rank0`` the first rank's is taken. Returns the missing and unexpected names.

    >>> import tesserack as ts
    >>> a, b = ts.nn.Linear(2, 1), ts.nn.Linear(2, 1)
    >>> set_model_state_dict(b, get_model_state_dict(a))
    <All keys matched successfully>
    """
    options, wrapped = options or StateDictOptions(), _Wrapped(model)
    given = dict(model_state_dict)
    if options.broadcast_from_rank0:
        given = _from_first(given)
    elif not given:
        return IncompatibleKeys([], [])
    with _kind(wrapped, options):
        if wrapped.is_flat:
            given = {name: _flat_state.whole_tensor(value) for name, value in given.items()}
        own = {wrapped.clean(name): name for name in _names_of(model)}
        targets = {} if wrapped.is_flat else wrapped.parameters(every_name=True)
        with ts.no_grad():
            ready = {own.get(name, name): _like(value, targets.get(name), name) for name, value in given.items()}
        return model.load_state_dict(ready, strict=options.strict)


def _names_of(model: nn.Module) -> list[str]:
    """The names that ``load_state_dict`` of the model expects."""
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    names += [name for name, _ in model.named_buffers(remove_duplicate=False)]
    found = [name for name in names if not name.endswith(FLAT_PARAM)]
    for prefix in (FSDP_PREFIX, CHECKPOINT_PREFIX):  # which such wrappers put before names themselves
        found = [name.replace(prefix, "") for name in found]
    return found


def _like(value: Any, target: Any, name: str) -> Any:
    """A whole value as its target is divided."""
    if not isinstance(value, Tensor) or target is None or not is_divided(target) or is_divided(value):
        return value
    if tuple(value.shape) != tuple(target.shape):
        raise ValueError(f"{name}: expected size {tuple(target.shape)}, got {tuple(value.shape)}")
    chunk = chunk_of(name, target)
    for dim, (begin, length) in enumerate(zip(chunk.offsets, chunk.sizes, strict=True)):
        value = value.narrow(dim, min(begin, value.shape[dim]), length)
    local = target._local_tensor
    return type(target)(value.to(device=local.device, dtype=value.dtype).clone(), _spec_of(target, value))


def _spec_of(target: Any, value: Tensor) -> Any:
    """The target's layout, of the value's dtype."""
    if value.dtype == target.dtype:
        return target._spec
    made = target.detach().to(value.dtype)
    return made._spec


def _from_first(given: Any) -> Any:
    """What the first rank has."""
    if not _world.is_initialized():
        return given
    box = [_flat_hosted(given) if _is_first() else None]
    _objects.broadcast_object_list(box, src=0)
    return box[0]


def _flat_hosted(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, Mapping):
        return {key: _flat_hosted(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(map(_flat_hosted, value))
    return value


# --- optimizers -------------------------------------------------------------------------------------------------------


def _listed(optimizers: Any) -> list[Any]:
    return list(optimizers) if isinstance(optimizers, Iterable) else [optimizers]


def _init_optim_state(optimizer: Any) -> None:
    """Have an optimizer make its state, by a step that changes nothing."""
    if optimizer.state:
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if any(p.grad is not None for p in parameters):
        return
    kept = [{key: group.get(key) for key in ("lr", "weight_decay")} for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = ts.zeros_like(group["lr"]) if isinstance(group["lr"], Tensor) else 0.0
        if group.get("weight_decay"):
            group["weight_decay"] = 0.0
    for parameter in parameters:
        parameter.grad = ts.zeros_like(parameter)
    try:
        optimizer.step()
    finally:
        for group, before in zip(optimizer.param_groups, kept, strict=True):
            group.update({key: value for key, value in before.items() if value is not None})
        optimizer.zero_grad(set_to_none=True)
    for state in optimizer.state.values():
        if "step" in state:
            state["step"] = state["step"] * 0


def _named_state(wrapped: _Wrapped, optimizer: Any) -> StateDict:
    """An optimizer's state dict with names instead of numbers."""
    if wrapped.is_flat:
        return FullyShardedDataParallel.optim_state_dict(wrapped.model, optimizer)
    names = {id(p): name for name, p in wrapped.parameters().items()}
    state = {names.get(id(p), p): dict(value) for p, value in optimizer.state.items() if id(p) in names}
    groups = [
        {**{k: v for k, v in group.items() if k not in ("params", "param_names")}, "params": _names(group, names)}
        for group in optimizer.param_groups
    ]
    return {"state": state, "param_groups": groups}


def _names(group: Mapping[str, Any], names: Mapping[int, str]) -> list[str]:
    try:
        return [names[id(p)] for p in group["params"]]
    except KeyError:
        raise ValueError(
            "get_optimizer_state_dict: the optimizer has a parameter that is not the model's: make it after the model "
            "is wrapped or divided"
        ) from None


def get_optimizer_state_dict(
    model: nn.Module,
    optimizers: Any,
    *,
    submodules: set[nn.Module] | None = None,
    options: StateDictOptions | None = None,
) -> StateDict:
    """The state of a model's optimizers under the names of its parameters: ``{"state": {name: ...}, "param_groups":
    [...]}``. An optimizer that has taken no step makes its state now, so that a checkpoint can be loaded into it.

    >>> import tesserack as ts
    >>> layer = ts.nn.Linear(2, 1)
    >>> state = get_optimizer_state_dict(layer, ts.optim.Adam(layer.parameters()))
    >>> list(state["state"]), list(state["state"]["bias"])
    (['weight', 'bias'], ['step', 'exp_avg', 'exp_avg_sq'])
    """
    options, wrapped = options or StateDictOptions(), _Wrapped(model)
    made: StateDict = {"state": {}, "param_groups": []}
    for optimizer in _listed(optimizers):
        _init_optim_state(optimizer)
        with _kind(wrapped, options):
            own = _named_state(wrapped, optimizer)
        if own:
            made["state"].update(own["state"])
            made["param_groups"] += own["param_groups"]
    made["state"] = {name: _placed(value, options) for name, value in made["state"].items()}
    if submodules:
        prefixes = tuple(f"{wrapped.clean(n)}." for n, module in model.named_modules() if module in submodules)
        made["state"] = {name: value for name, value in made["state"].items() if name.startswith(prefixes)}
        for group in made["param_groups"]:
            group["params"] = [name for name in group["params"] if name.startswith(prefixes)]
    made = _for_this_rank(made, options)
    return _flattened(made) if options.flatten_optimizer_state_dict and made else made


def _flattened(made: StateDict) -> StateDict:
    flat = {}
    for name, state in made["state"].items():
        for key, value in state.items():
            flat[f"state.{name}.{key}"] = value
    for group in made["param_groups"]:
        for name in group["params"]:
            for key, value in group.items():
                if key != "params":
                    flat[f"param_groups.{name}.{key}"] = value
    return flat


def _nested(flat: Mapping[str, Any], optimizer: Any, names: Mapping[int, str]) -> StateDict:
    """The reverse, for the groups of an optimizer."""
    state: StateDict = {}
    groups = []
    for group in optimizer.param_groups:
        own = [names[id(p)] for p in group["params"]]
        made: StateDict = {"params": own}
        for key in group:
            found = [flat[f"param_groups.{name}.{key}"] for name in own if f"param_groups.{name}.{key}" in flat]
            if key != "params" and found:
                made[key] = found[0]
        groups.append(made)
        for name in own:
            start = f"state.{name}."
            keys = {key[len(start) :]: value for key, value in flat.items() if key.startswith(start)}
            if keys:
                state[name] = keys
    return {"state": state, "param_groups": groups}


def set_optimizer_state_dict(
    model: nn.Module,
    optimizers: Any,
    optim_state_dict: Mapping[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Give a model's optimizers what :func:`get_optimizer_state_dict` gave, whatever wraps the model now."""
    options, wrapped = options or StateDictOptions(), _Wrapped(model)
    given: Any = _from_first(optim_state_dict) if options.broadcast_from_rank0 else optim_state_dict
    if not given:
        return
    for optimizer in _listed(optimizers):
        with _kind(wrapped, options), ts.no_grad():
            _give(wrapped, optimizer, given)


def _give(wrapped: _Wrapped, optimizer: Any, given: Mapping[str, Any]) -> None:
    flat = "state" not in given
    if wrapped.is_flat:
        if flat:
            raise NotImplementedError(
                "set_optimizer_state_dict: flatten_optimizer_state_dict is absent for FullyShardedDataParallel"
            )
        made = FullyShardedDataParallel.optim_state_dict_to_load(wrapped.model, optimizer, dict(given))
        optimizer.load_state_dict(made)
        return
    names = {id(p): name for name, p in wrapped.parameters().items()}
    nested = _nested(given, optimizer, names) if flat else given
    packed = optimizer.state_dict()
    number = 0
    states = {}
    saved_groups = {name: group for group in nested["param_groups"] for name in group["params"]}
    for group, target in zip(optimizer.param_groups, packed["param_groups"], strict=True):
        for parameter in group["params"]:
            name = names[id(parameter)]
            if name in nested["state"]:
                states[number] = {
                    key: _like_state(value, parameter, name) for key, value in nested["state"][name].items()
                }
            if name in saved_groups:
                target.update({k: v for k, v in saved_groups[name].items() if k != "params"})
            number += 1
    packed["state"] = states
    optimizer.load_state_dict(packed)


def _like_state(value: Any, parameter: Any, name: str) -> Any:
    """A value of a state as the parameter is divided, where it has its shape."""
    same = isinstance(value, Tensor) and value.ndim > 0 and tuple(value.shape) == tuple(parameter.shape)
    if same and is_divided(value) and not is_divided(parameter):
        return _flat_state.whole_tensor(value)
    return _like(value, parameter, name) if same else value


# --- both -------------------------------------------------------------------------------------------------------------


def get_state_dict(
    model: nn.Module,
    optimizers: Any,
    *,
    submodules: set[nn.Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[StateDict, StateDict]:
    """:func:`get_model_state_dict` and :func:`get_optimizer_state_dict`."""
    own = get_model_state_dict(model, submodules=submodules, options=options)
    return own, get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options)


def set_state_dict(
    model: nn.Module,
    optimizers: Any,
    *,
    model_state_dict: Mapping[str, Any],
    optim_state_dict: Mapping[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """:func:`set_model_state_dict` and :func:`set_optimizer_state_dict`."""
    result = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return result
