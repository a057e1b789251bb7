"""State dicts of optimizers over flat units: under the model's names, whole or divided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _world
from tesserack.distributed._objects import all_gather_object, broadcast_object_list
from tesserack.distributed.fsdp import _flat_state as state
from tesserack.distributed.fsdp._flat_param import FlatGroup
from tesserack.distributed.fsdp._prefixes import clean_name
from tesserack.distributed.fsdp.api import (
    FullOptimStateDictConfig,
    OptimStateDictConfig,
    OptimStateKeyType,
    StateDictType,
)

__all__ = ["OptimStateMethods"]

StateDict = dict[str, Any]


class _Named:
    """The parameters of a model by what an optimizer has of them: names, and how whole values come from it."""

    def __init__(self, model: Any) -> None:
        self.groups: dict[int, tuple[FlatGroup, int | None]] = {}  # by leaf; None: the leaf is the whole vector
        self.names: dict[int, list[str]] = {}
        for prefix, module in model.named_modules():
            if "_fsdp_unit" not in module.__dict__ or not hasattr(module, "_flat_groups"):
                continue
            for group in module._flat_groups():
                below = clean_name(f"{prefix}." if prefix else "")
                names = [below + name for name in group.names]
                if group.by_parameter:
                    for at, leaf in enumerate(group.layout.leaves):
                        self.groups[id(leaf)] = group, at
                        self.names[id(leaf)] = [names[at]]
                else:
                    self.groups[id(group.layout.leaves[0])] = group, None
                    self.names[id(group.layout.leaves[0])] = names
        for name, parameter in model.named_parameters():
            self.names.setdefault(id(parameter), [clean_name(name)])

    def whole(self, leaf: Any, saved: Mapping[str, Any], divided: bool) -> list[dict[str, Any]]:
        """The state of each parameter of a leaf; collectives of the ranks that divide it."""
        found = self.groups.get(id(leaf))
        if found is None:
            return [dict(saved)]
        group, at = found
        chosen = range(len(group.places)) if at is None else [at]
        result: list[dict[str, Any]] = [{} for _ in chosen]
        for key, kind in self._keys(group, saved):
            value = saved.get(key)
            if kind == "part":
                mine = self._part(group, at, value, key, saved)
                for one, k in zip(result, chosen, strict=True):
                    full = group.gathered(mine)[k]
                    one[key] = state.divided_tensor(full, group.layout.ranks) if divided else full.clone()
            else:
                for one in result:
                    one[key] = value.clone() if isinstance(value, Tensor) else value
        return result

    @staticmethod
    def _keys(group: FlatGroup, saved: Mapping[str, Any]) -> list[tuple[str, str]]:
        """The keys of a state, the same on all ranks, and whether each is of the shape of the leaf."""
        mine = [(key, "part" if isinstance(v, Tensor) and v.ndim else "alike") for key, v in saved.items()]
        if group.layout.ranks.parts == 1:
            return mine
        found: list[Any] = [None] * group.layout.ranks.parts
        all_gather_object(found, mine, group.layout.ranks.shard)
        return list(dict.fromkeys(pair for each in found for pair in each))

    @staticmethod
    def _part(group: FlatGroup, at: int | None, value: Any, key: str, saved: Mapping[str, Any]) -> Tensor:
        if at is None:
            return value  # type: ignore[no-any-return]
        dtype = value.dtype if value is not None else group.layout.part.dtype
        mine = ts.zeros(group.layout.each, dtype=dtype, device=group.layout.part.device)
        if value is not None:
            group.layout.own(mine, at).copy_(value)
        return mine

    def own(self, leaf: Any, saved: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The state that a leaf has of its parameters' whole (or divided) one."""
        names = self.names[id(leaf)]
        states = [saved.get(name) for name in names]
        if all(each is None for each in states):
            return {}
        found = self.groups.get(id(leaf))
        first = next(each for each in states if each is not None)
        if found is None:
            return {key: state.whole_tensor(value) for key, value in first.items()}
        group, at = found
        made: dict[str, Any] = {}
        for key, example in first.items():
            if not (isinstance(example, Tensor) and example.ndim):
                made[key] = example
                continue
            wholes: list[Tensor | None] = [None] * len(group.places)
            for k, each in zip(range(len(states)) if at is None else [at], states, strict=True):
                wholes[k] = None if each is None else state.whole_tensor(each[key])
            mine = group.divided(wholes)
            made[key] = mine if at is None else group.layout.own(mine, at).clone()
        return made


def _saved(
    model: Any, optim: Any, given: StateDict | None, kind: StateDictType, config: OptimStateDictConfig
) -> StateDict:
    named = _Named(model)
    given = optim.state_dict() if given is None else given
    leaves = [p for group in optim.param_groups for p in group["params"]]
    numbers = [n for group in given["param_groups"] for n in group["params"]]
    leaf_of = dict(zip(numbers, leaves, strict=True))
    known = _known_everywhere([n for n in numbers if n in given["state"]], numbers)
    states: dict[Any, Any] = {}
    for number in numbers:
        if number not in known:
            continue
        leaf, own = leaf_of[number], given["state"].get(number, {})
        if kind is StateDictType.LOCAL_STATE_DICT:
            states.update({named.names[id(leaf)][0]: own})
            continue
        wholes = named.whole(leaf, own, kind is StateDictType.SHARDED_STATE_DICT)
        states.update(zip(named.names[id(leaf)], wholes, strict=True))
    if config.offload_to_cpu:
        states = {name: {k: _on_host(v) for k, v in each.items()} for name, each in states.items()}
    groups = [
        {**group, "params": [name for n in group["params"] for name in named.names[id(leaf_of[n])]]}
        for group in given["param_groups"]
    ]
    others = {key: value for key, value in given["state"].items() if key not in leaf_of}
    if getattr(config, "rank0_only", False) and _world.get_rank() != 0:
        return {}
    return {"state": {**states, **others}, "param_groups": groups}


def _known_everywhere(mine: list[Any], numbers: list[Any]) -> set[Any]:
    """Which numbers have a state on some rank."""
    found: list[Any] = [None] * _world.get_world_size()
    all_gather_object(found, mine)
    return {number for each in found for number in each if number in set(numbers)}


def _on_host(value: Any) -> Any:
    return value.cpu() if isinstance(value, Tensor) else value


def _to_load(model: Any, optim: Any, saved: StateDict, kind: StateDictType) -> StateDict:
    named = _Named(model)
    leaves = [p for group in optim.param_groups for p in group["params"]]
    numbers = {id(leaf): n for n, leaf in enumerate(leaves)}
    states = {}
    for leaf in leaves:
        if kind is StateDictType.LOCAL_STATE_DICT:
            own = dict(saved["state"].get(named.names[id(leaf)][0], {}))
        else:
            own = named.own(leaf, saved["state"])
        if own:
            states[numbers[id(leaf)]] = own
    names = {name: id(leaf) for leaf in leaves for name in named.names[id(leaf)]}
    options: dict[int, StateDict] = {}
    for group in saved["param_groups"]:
        for name in group["params"]:
            if name in names:
                options[names[name]] = {k: v for k, v in group.items() if k != "params"}
    groups = [
        {
            **{k: v for k, v in group.items() if k != "params"},
            **(options.get(id(group["params"][0]), {}) if group["params"] else {}),
            "params": [numbers[id(p)] for p in group["params"]],
        }
        for group in optim.param_groups
    ]
    others = {k: v for k, v in saved["state"].items() if k not in names}
    return {"state": {**states, **others}, "param_groups": groups}


class OptimStateMethods:
    """The methods of ``FullyShardedDataParallel`` that are about optimizers."""

    @staticmethod
    def optim_state_dict(
        model: Any, optim: Any, optim_state_dict: StateDict | None = None, group: Any = None
    ) -> StateDict:
        """An optimizer's state dict under the model's names, of the kind that :meth:`state_dict_type` says; every rank
        calls it. ``optim_state_dict`` is what is taken instead of the optimizer's."""
        settings = state.get_type(model)
        return _saved(model, optim, optim_state_dict, settings.state_dict_type, settings.optim_state_dict_config)

    @staticmethod
    def optim_state_dict_to_load(
        model: Any,
        optim: Any,
        optim_state_dict: StateDict,
        is_named_optimizer: bool = False,
        load_directly: bool = False,
        group: Any = None,
    ) -> StateDict:
        """What :meth:`optim_state_dict` gave, as the optimizer's ``load_state_dict`` takes it on this rank;
        ``load_directly`` has it loaded."""
        if is_named_optimizer:
            raise NotImplementedError("optim_state_dict_to_load: optimizers with names as keys are absent")
        settings = state.get_type(model)
        config = settings.optim_state_dict_config
        if isinstance(config, FullOptimStateDictConfig) and config.rank0_only:
            optim_state_dict = _from_first(optim_state_dict)
        made = _to_load(model, optim, optim_state_dict, settings.state_dict_type)
        if load_directly:
            optim.load_state_dict(made)
        return made

    @staticmethod
    def full_optim_state_dict(
        model: Any, optim: Any, optim_input: Any = None, rank0_only: bool = True, group: Any = None
    ) -> StateDict:
        """Whole tensors under the model's names, on the first rank alone if ``rank0_only``."""
        config = FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=rank0_only)
        return _saved(model, optim, None, StateDictType.FULL_STATE_DICT, config)

    @staticmethod
    def sharded_optim_state_dict(model: Any, optim: Any, group: Any = None) -> StateDict:
        """``DTensor``s under the model's names."""
        config = OptimStateDictConfig(offload_to_cpu=False)
        return _saved(model, optim, None, StateDictType.SHARDED_STATE_DICT, config)

    @staticmethod
    def shard_full_optim_state_dict(
        full_optim_state_dict: StateDict, model: Any, optim_input: Any = None, optim: Any = None
    ) -> StateDict:
        """This rank's part of what :meth:`full_optim_state_dict` gave, for ``load_state_dict`` of ``optim``."""
        return _to_load(model, _given(optim), full_optim_state_dict, StateDictType.FULL_STATE_DICT)

    @staticmethod
    def flatten_sharded_optim_state_dict(sharded_optim_state_dict: StateDict, model: Any, optim: Any) -> StateDict:
        """This rank's part of what :meth:`sharded_optim_state_dict` gave."""
        return _to_load(model, _given(optim), sharded_optim_state_dict, StateDictType.SHARDED_STATE_DICT)

    @staticmethod
    def scatter_full_optim_state_dict(
        full_optim_state_dict: StateDict | None,
        model: Any,
        optim_input: Any = None,
        optim: Any = None,
        group: Any = None,
    ) -> StateDict:
        """As :meth:`shard_full_optim_state_dict`, of what the first rank has."""
        whole = _from_first(full_optim_state_dict)
        return _to_load(model, _given(optim), whole, StateDictType.FULL_STATE_DICT)

    @staticmethod
    def rekey_optim_state_dict(
        optim_state_dict: StateDict,
        optim_state_key_type: OptimStateKeyType,
        model: Any,
        optim_input: Any = None,
        optim: Any = None,
    ) -> StateDict:
        """A state dict of one that is under no wrapper, from numbers of parameters to names or back."""
        names = [clean_name(name) for name, _ in model.named_parameters()]
        if optim is not None:
            own = {id(p): clean_name(name) for name, p in model.named_parameters()}
            names = [own[id(p)] for group in optim.param_groups for p in group["params"]]
        to: dict[Any, Any] = dict(enumerate(names))
        if optim_state_key_type is OptimStateKeyType.PARAM_ID:
            to = {name: number for number, name in to.items()}
        return {
            "state": {to.get(key, key): value for key, value in optim_state_dict["state"].items()},
            "param_groups": [
                {**group, "params": sorted(to.get(p, p) for p in group["params"])}
                for group in optim_state_dict["param_groups"]
            ],
        }


def _given(optim: Any) -> Any:
    if optim is None:
        raise ValueError("expected the optimizer as optim: optim_input is the older form, which is absent")
    return optim


def _from_first(given: StateDict | None) -> StateDict:
    """What the first rank has."""
    box = [given if _world.get_rank() == 0 else None]
    broadcast_object_list(box, src=0)
    if box[0] is None:
        raise ValueError("expected the optimizer's state dict on the first rank, got None")
    return box[0]
