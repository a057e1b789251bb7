"""``FullyShardedDataParallel``: a module around another, whose parameters are divided over ranks as one flat vector."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _collectives as over
from tesserack.distributed import _world
from tesserack.distributed._coalesced import broadcast_coalesced
from tesserack.distributed._reduce_op import ReduceOp
from tesserack.distributed.fsdp import _flat_state as state
from tesserack.distributed.fsdp._flat_param import FlatGroup, FlatParameter, exposed, flat_group
from tesserack.distributed.fsdp._optim_state import OptimStateMethods
from tesserack.distributed.fsdp._places import Place, places_of
from tesserack.distributed.fsdp._prefixes import FSDP_PREFIX, FSDP_WRAPPED_MODULE, clean_name
from tesserack.distributed.fsdp._preparing import HYBRID, auto_wrap, ignored_by, materialize, move, ranks_of
from tesserack.distributed.fsdp._state import UnitState
from tesserack.distributed.fsdp.api import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from tesserack.nn.modules.module import Module

__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "FlatParameter",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "FullyShardedDataParallel",
    "LocalOptimStateDictConfig",
    "LocalStateDictConfig",
    "MixedPrecision",
    "OptimStateDictConfig",
    "OptimStateKeyType",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictSettings",
    "StateDictType",
]

_BROADCAST_BYTES = 250 << 20


class FullyShardedDataParallel(OptimStateMethods, Module):
    """A module whose parameters lie divided over ranks and are whole only while it computes.

    Each wrapped module is a unit, gathered and reduced at once: wrap parts of a large model too, by an
    ``auto_wrap_policy``. Make the optimizer after wrapping.

    Args:
        module: the module.
        process_group: the ranks, by default all; of ``HYBRID_SHARD``, a pair: who divides, and who has copies.
        sharding_strategy: :class:`ShardingStrategy`, by default ``FULL_SHARD``.
        cpu_offload: :class:`CPUOffload`.
        auto_wrap_policy: which modules below are units: see :mod:`tesserack.distributed.fsdp.wrap`.
        backward_prefetch: when backward gathers the next unit, None: not before it is needed.
        mixed_precision: :class:`MixedPrecision`.
        ignored_modules, ignored_states: modules, or parameters, that stay as they are.
        param_init_fn: gives the parameters of a module on the meta device memory and values; by default
            ``to_empty`` and ``reset_parameters``.
        device_id: where computation is.
        sync_module_states: take parameters and buffers of the first rank.
        use_orig_params: whether ``parameters()`` are the model's own, each with this rank's part, and not one flat one.
        device_mesh: the ranks, as a mesh of one dim or (``HYBRID_SHARD``) two.
        forward_prefetch, limit_all_gathers: accepted, and have no effect.

    >>> import tesserack as ts
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> model = FullyShardedDataParallel(ts.nn.Linear(2, 1), use_orig_params=True)
    >>> model(ts.ones(4, 2)).sum().backward()
    >>> [p.grad.tolist() for p in model.parameters()]
    [[[4.0, 4.0]], [4.0]]
    >>> ts.distributed.destroy_process_group()
    """

    def __init__(
        self,
        module: Module,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], Any] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Iterable[Any] | None = None,
        device_mesh: Any = None,
    ) -> None:
        super().__init__()
        self.sharding_strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        self.mixed_precision = mixed_precision or MixedPrecision()
        if self.mixed_precision.keep_low_precision_grads:
            raise NotImplementedError(
                "FullyShardedDataParallel: keep_low_precision_grads is absent: gradients are of their parameter's dtype"
            )
        modules, parameters = ignored_by(ignored_modules, ignored_states)
        self._ranks = ranks_of(self.sharding_strategy, process_group, device_mesh)
        self.process_group = self._ranks.shard if self._ranks.shard is not None else self._ranks.replicate
        if auto_wrap_policy is not None:
            options = {
                "process_group": process_group if process_group is not None else self._pair(),
                "sharding_strategy": sharding_strategy,
                "cpu_offload": cpu_offload,
                "backward_prefetch": backward_prefetch,
                "mixed_precision": mixed_precision,
                "param_init_fn": param_init_fn,
                "device_id": device_id,
                "sync_module_states": sync_module_states,
                "use_orig_params": use_orig_params,
                "ignored_states": list(parameters) or None,
            }
            auto_wrap(
                FullyShardedDataParallel, module, auto_wrap_policy, modules, parameters, options, self.mixed_precision
            )
        self._fsdp_wrapped_module = module
        places = places_of([module], _is_unit, modules, parameters)
        materialize(places, param_init_fn, device_id)
        places = places_of([module], _is_unit, modules, parameters)
        if device_id is not None:
            move(places, module, device_id)
        if sync_module_states:
            self._take_first_ranks(places, module)
        self._make_unit(places, cpu_offload or CPUOffload(), use_orig_params)
        unit: UnitState = self.__dict__["_fsdp_unit"]
        unit.prefetches_backward = backward_prefetch is not None
        unit.prefetches_early = backward_prefetch is BackwardPrefetch.BACKWARD_PRE
        self._use_orig_params, self._exposing = use_orig_params, False
        self._settings = StateDictSettings(
            StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig()
        )
        state.install(self)

    def _pair(self) -> Any:
        if self.sharding_strategy in HYBRID:
            return self._ranks.shard, self._ranks.replicate
        return self.process_group

    def _take_first_ranks(self, places: dict[Any, list[Place]], module: Module) -> None:
        inner = {id(b) for m in module.modules() if _is_unit(m) for b in m.buffers()}
        tensors = [p.detach() for p in places] + [b.detach() for b in module.buffers() if id(b) not in inner]
        for group in (self._ranks.replicate, self._ranks.shard):
            if group is not None and tensors:
                broadcast_coalesced(group, tensors, _BROADCAST_BYTES)

    def _make_unit(self, places: dict[Any, list[Place]], offload: CPUOffload, use_orig_params: bool) -> None:
        groups = []
        if places:
            names = {id(p): clean_name(n) for n, p in self._fsdp_wrapped_module.named_parameters()}
            group = flat_group(
                places,
                self._fsdp_wrapped_module,
                [names[id(p)] for p in places],
                self._ranks,
                by_parameter=use_orig_params,
                to_host=offload.offload_params,
            )
            mixed = self.mixed_precision
            group.layout.param_dtype, group.layout.reduce_dtype = mixed.param_dtype, mixed.reduce_dtype
            groups.append(group)
        unit = UnitState([self], groups)
        unit.param_dtype = self.mixed_precision.param_dtype
        unit.casts_inputs = self.mixed_precision.cast_forward_inputs
        unit.casts_root_inputs = self.mixed_precision.cast_root_forward_inputs
        frees = self.sharding_strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD)
        unit.reshards_after_forward = None if frees else False
        self.__dict__["_fsdp_unit"] = unit
        if self.mixed_precision.buffer_dtype is not None:
            for buffer in self._fsdp_wrapped_module.buffers():
                if buffer.is_floating_point():
                    buffer.data = buffer.data.to(self.mixed_precision.buffer_dtype)

    # --- as a module ----------------------------------------------------------------------------------------------

    @property
    def module(self) -> Any:
        """The wrapped module."""
        return self._fsdp_wrapped_module

    @property
    def rank(self) -> int:
        """This rank among those that parameters are divided over."""
        return _world.get_rank(self.process_group)

    @property
    def world_size(self) -> int:
        """How many there are."""
        return _world.get_world_size(self.process_group)

    @property
    def _flat_param(self) -> Any:
        groups = self._flat_groups()
        return groups[0].layout.leaves[0] if groups and not self._use_orig_params else None

    def _flat_groups(self) -> list[FlatGroup]:
        unit: UnitState = self.__dict__["_fsdp_unit"]
        return list(unit.groups)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        """What the wrapper lacks is the module's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == FSDP_WRAPPED_MODULE:
                raise
            return getattr(self._fsdp_wrapped_module, name)

    def __getitem__(self, key: int) -> Any:
        """The module's, of a ``Sequential``."""
        wrapped: Any = self._fsdp_wrapped_module
        return wrapped[key]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's, with whole parameters."""
        unit: UnitState = self.__dict__["_fsdp_unit"]
        return unit.run(self, self._fsdp_wrapped_module, args, kwargs)

    def check_is_root(self) -> bool:
        """Whether this is the outermost unit."""
        unit: UnitState = self.__dict__["_fsdp_unit"]
        unit.join_model()
        return unit.is_root

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """The units in a model; ``root_only``: those that are in no other."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        if not root_only:
            return found
        below = {id(m) for unit in found for m in unit.modules() if m is not unit}
        return [unit for unit in found if id(unit) not in below]

    def apply(self, fn: Callable[[Module], Any]) -> Any:
        """``fn`` of every module, with whole parameters, which are divided anew."""
        with exposed(self._flat_groups(), write_back=True):
            return super().apply(fn)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Conversions are of the divided parameters, which lie in one memory again afterwards."""
        for group in self._flat_groups():
            group.reshard()
        result = super()._apply(*args, **kwargs)
        for group in self._flat_groups():
            group.retake()
        return result

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Under the model's own names within :meth:`summon_full_params`."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield (name.replace(FSDP_PREFIX, "") if self._exposing else name), parameter

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Under the model's own names within :meth:`summon_full_params`."""
        for name, buffer in super().named_buffers(*args, **kwargs):
            yield (name.replace(FSDP_PREFIX, "") if self._exposing else name), buffer

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """A context in which the modules have whole parameters; what is written to them is kept if ``writeback``."""
        if rank0_only and writeback:
            raise NotImplementedError("summon_full_params: writeback is not supported with rank0_only; pass False")
        units = FullyShardedDataParallel.fsdp_modules(module)
        if not recurse:
            units = [unit for unit in units if unit is module]
        groups = [group for unit in units for group in unit._flat_groups()]
        keep = not rank0_only or _world.get_rank() == 0
        for unit in units:
            unit._exposing = True
        try:
            with exposed(groups, writeback, keep, offload_to_cpu, with_grads):
                yield
        finally:
            for unit in units:
                unit._exposing = False

    # --- training -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards within do not reduce gradients: they are kept whole, and go with the next outside."""
        groups = [g for unit in self.fsdp_modules(self) for g in unit._flat_groups()]
        before = [g.syncs for g in groups]
        for group in groups:
            group.syncs = False
        try:
            yield
        finally:
            for group, syncs in zip(groups, before, strict=True):
                group.syncs = syncs

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scale all gradients so that their norm over all ranks is at most ``max_norm``; returns the norm before."""
        with ts.no_grad():
            return self._clipped(max_norm, norm_type)

    def _clipped(self, max_norm: float, norm_type: float) -> Tensor:
        order = float(norm_type)
        divided: dict[Any, list[Tensor]] = {}
        everywhere: list[Tensor] = []
        seen: set[int] = set()
        for unit in self.fsdp_modules(self):
            for group in unit._flat_groups():
                grads = [leaf.grad for leaf in group.layout.leaves if leaf.grad is not None]
                seen.update(id(leaf) for leaf in group.layout.leaves)
                where = divided.setdefault(unit._ranks.shard, []) if unit._ranks.parts > 1 else everywhere
                where.extend(grads)
        everywhere += [p.grad for p in self.parameters() if id(p) not in seen and p.grad is not None]
        total = _power_sum(everywhere, order)
        for shard, grads in divided.items():
            mine = _power_sum(grads, order)
            over.all_reduce(mine, ReduceOp.MAX if math.isinf(order) else ReduceOp.SUM, shard)
            total = ts.maximum(total, mine) if math.isinf(order) else total + mine
        norm = total if math.isinf(order) else total ** (1.0 / order)
        scale = (float(max_norm) / (norm + 1e-6)).clamp(max=1.0)
        for grads in (everywhere, *divided.values()):
            for grad in grads:
                grad.mul_(scale.to(device=grad.device, dtype=grad.dtype))
        kinds = {g.dtype for grads in (everywhere, *divided.values()) for g in grads}
        return norm.to(functools.reduce(ts.promote_types, kinds)) if kinds else norm

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """Absent: ``NotImplementedError``."""
        raise NotImplementedError(
            "FullyShardedDataParallel.register_comm_hook is absent; reduce in half the bytes with "
            "MixedPrecision(reduce_dtype=...)"
        )

    # --- state dicts ----------------------------------------------------------------------------------------------

    @staticmethod
    def set_state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> StateDictSettings:
        """Say which kind of state dicts a model makes; returns what was said before."""
        return state.set_type(module, state_dict_type, state_dict_config, optim_state_dict_config)

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """Which kind of state dicts a model makes. ``AssertionError`` where its units differ, or there are none."""
        return state.get_type(module)

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> Iterator[None]:
        """A context in which a model makes state dicts of a kind."""
        before = state.set_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            state.set_type(module, before.state_dict_type, before.state_dict_config, before.optim_state_dict_config)


def _power_sum(grads: list[Tensor], order: float) -> Tensor:
    """The sum of powers of what is in gradients, in float32 at least; their maximum, of the order infinity."""
    norms = [ts.linalg.vector_norm(g, order, dtype=ts.promote_types(g.dtype, ts.float32)) for g in grads if g.numel()]
    if not norms:
        return ts.zeros(())
    stacked = ts.stack([n.to(norms[0].device) for n in norms])
    return stacked.max() if math.isinf(order) else (stacked**order).sum()


def _is_unit(module: Any) -> bool:
    return isinstance(module, FullyShardedDataParallel)
