"""``ZeroRedundancyOptimizer``: each rank keeps the optimizer's state of some parameters, and tells the others of them.

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020: its first stage.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _collectives as over
from tesserack.distributed import _objects, _world
from tesserack.distributed._coalesced import broadcast_coalesced
from tesserack.distributed.algorithms.join import Join, Joinable, JoinHook
from tesserack.optim.optimizer import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]

BYTES_AT_ONCE = 25 << 20
Group = dict[str, Any]


class _JoinHook(JoinHook):
    """Once this rank's data has ended: its parameters are still its to update."""

    def __init__(self, zero: ZeroRedundancyOptimizer) -> None:
        self.zero = zero

    def main_hook(self) -> None:
        """A step of the others."""
        self.zero._step(None, {})


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """An optimizer whose state is divided over ranks: each takes the steps of some parameters and sends what they are.

    Args:
        params: all parameters, the same on every rank, with the same gradients (as under
            ``DistributedDataParallel``).
        optimizer_class: the class of the optimizer.
        process_group: the ranks, by default all.
        parameters_as_bucket_view: let the parameters of each rank lie in one memory, which spares copies.
        overlap_with_ddp: absent, ``NotImplementedError``: steps come after backward.
        defaults: options of the optimizer.

    >>> import tesserack as ts
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> layer = ts.nn.Linear(2, 1, bias=False)
    >>> optimizer = ZeroRedundancyOptimizer(layer.parameters(), ts.optim.Adam, lr=0.1)
    >>> layer(ts.ones(1, 2)).sum().backward()
    >>> optimizer.step()
    >>> optimizer.consolidate_state_dict()
    >>> list(optimizer.state_dict()["state"])
    [0]
    >>> ts.distributed.destroy_process_group()
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp is absent: call step() after backward; for steps within "
                "backward see _apply_optimizer_in_backward"
            )
        self.initialized = False
        self.process_group = process_group if process_group is not None else _world.get_default_group()
        self.world_size, self.rank = _world.get_world_size(self.process_group), _world.get_rank(self.process_group)
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._optim_defaults, self._optim_constructor = defaults, optimizer_class
        self._all_state_dicts: list[dict[int, dict[str, Any]]] = []
        self._buckets: list[list[tuple[Tensor, list[Tensor]]]] = []
        Joinable.__init__(self)
        listed = [params] if isinstance(params, Tensor) else list(params)
        Optimizer.__init__(self, listed, self._defaults_of(listed))
        self._divide()
        self.initialized = True

    def _defaults_of(self, listed: list[Any]) -> dict[str, Any]:
        """The options of the class where they are not given: schedulers look there."""
        if not listed:
            return self._optim_defaults
        example = self._optim_constructor([ts.zeros(1, requires_grad=True)], **self._optim_defaults)
        return {**example.defaults, **self._optim_defaults}

    # --- who has what ---------------------------------------------------------------------------------------------

    def _partition(self) -> list[list[list[Tensor]]]:
        """For each rank and each group, its parameters: the largest first, each to the rank that has least."""
        load = [0] * self.world_size
        parts: list[list[list[Tensor]]] = [[[] for _ in self.param_groups] for _ in range(self.world_size)]
        for number, group in enumerate(self.param_groups):
            for parameter in sorted(group["params"], key=lambda p: -p.numel()):
                rank = load.index(min(load))
                parts[rank][number].append(parameter)
                load[rank] += parameter.numel()
        return parts

    def _divide(self) -> None:
        self._parts = self._partition()
        self._all = [p for group in self.param_groups for p in group["params"]]
        self._param_to_rank = {id(p): rank for rank, part in enumerate(self._parts) for own in part for p in own}
        self._param_to_index = {id(p): index for index, p in enumerate(self._all)}
        own = self._parts[self.rank]
        groups = [{**_options(group), "params": params} for group, params in zip(self.param_groups, own, strict=True)]
        self.optim = self._optim_constructor(groups, **self._optim_defaults)
        if self.parameters_as_bucket_view:
            self._fill_buckets()

    def _fill_buckets(self) -> None:
        self._buckets = []
        for part in self._parts:
            kinds: dict[Any, list[Tensor]] = {}
            for parameter in (p for own in part for p in own):
                kinds.setdefault((parameter.dtype, str(parameter.device)), []).append(parameter)
            self._buckets.append([(self._joined(alike), alike) for alike in kinds.values()])

    @staticmethod
    def _joined(parameters: list[Tensor]) -> Tensor:
        with ts.no_grad():
            bucket = ts.cat([p.detach().reshape(-1) for p in parameters])
            for parameter, view in zip(parameters, bucket.split([p.numel() for p in parameters]), strict=True):
                parameter.data = view.view(parameter.shape)
        return bucket

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters; who has what is decided anew, and the state goes along."""
        super().add_param_group(param_group)
        if self.initialized:
            states = self._gathered_states()
            self._divide()
            self._take_states(states)

    def _gathered_states(self) -> dict[int, dict[str, Any]]:
        """The state of each parameter by its number, on every rank."""
        mine = {self._param_to_index[id(p)]: copy_to_host(dict(state)) for p, state in self.optim.state.items()}
        found: list[Any] = [None] * self.world_size
        _objects.all_gather_object(found, mine, self.process_group)
        return dict(sorted((number, state) for each in found for number, state in each.items()))

    def _take_states(self, states: dict[int, dict[str, Any]]) -> None:
        own = [p for group in self.optim.param_groups for p in group["params"]]
        packed = self.optim.state_dict()
        numbers = [self._param_to_index[id(p)] for p in own]
        packed["state"] = {k: states[number] for k, number in enumerate(numbers) if number in states}
        self.optim.load_state_dict(packed)

    # --- steps ----------------------------------------------------------------------------------------------------

    def _tell_options(self) -> None:
        """What schedulers set is set in the groups of all parameters."""
        for group, whole in zip(self.optim.param_groups, self.param_groups, strict=True):
            group.update(_options(whole))

    def _hear_options(self) -> None:
        for group, whole in zip(self.optim.param_groups, self.param_groups, strict=True):
            whole.update(_options(group))

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Update this rank's parameters, and get the others'."""
        Join.notify_join_context(self)
        return self._step(closure, kwargs)

    def _step(self, closure: Callable[[], Any] | None, kwargs: dict[str, Any]) -> Any:
        self._tell_options()
        loss = self.optim.step(closure, **kwargs) if closure is not None else self.optim.step(**kwargs)
        self._hear_options()
        self._sync_params()
        return loss

    def _sync_params(self) -> None:
        with ts.no_grad():
            for rank, part in enumerate(self._parts):
                if self.parameters_as_bucket_view:
                    for bucket, _ in self._buckets[rank]:
                        over.broadcast(bucket, group=self.process_group, group_src=rank)
                else:
                    tensors = [p.detach() for own in part for p in own]
                    if tensors:
                        broadcast_coalesced(self.process_group, tensors, BYTES_AT_ONCE, rank)

    # --- saving ---------------------------------------------------------------------------------------------------

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the state of all parameters to a rank, whose :meth:`state_dict` has it then; every rank calls this."""
        states = self._gathered_states()
        self._all_state_dicts = [states] if self.rank == to else []

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters, as the optimizer's alone would be. ``RuntimeError`` unless
        :meth:`consolidate_state_dict` has brought it to this rank."""
        if not self._all_state_dicts:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to="
                f"{self.rank})` on all ranks beforehand if you meant to save the global state."
            )
        packed = super().state_dict()
        packed["state"] = copy.copy(self._all_state_dicts[0])
        return packed

    def load_state_dict(self, state_dict: Any) -> None:
        """Take the state of all parameters, of which this rank keeps its own."""
        packed = dict(state_dict)
        states = {number: state for number, state in packed["state"].items() if isinstance(number, int)}
        packed["state"] = {}
        super().load_state_dict(packed)
        self._tell_options()
        self._take_states(states)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters."""
        super().zero_grad(set_to_none)

    # --- uneven inputs --------------------------------------------------------------------------------------------

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What ``Join`` asks for."""
        return _JoinHook(self)

    @property
    def join_device(self) -> Any:
        """Where ranks count who is still there."""
        return self._all[0].device

    @property
    def join_process_group(self) -> Any:
        """Who counts."""
        return self.process_group


def _options(group: Group) -> Group:
    return {key: value for key, value in group.items() if key not in ("params", "param_names")}


def copy_to_host(state: Any) -> Any:
    """A state whose tensors are copies on the host."""
    if isinstance(state, Tensor):
        return state.detach().cpu().clone()
    if isinstance(state, dict):
        return {key: copy_to_host(value) for key, value in state.items()}
    return state
