"""What goes on around a module's forward and backward, and what the modules of a model share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.distributed.fsdp._group import ParamGroup, Passed, watching
from tesserack.nn.parallel._buckets import tensors_of
from tesserack.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["Iteration", "UnitState", "states_of"]


class Iteration:
    """What the units of one model share: their order in forward, and the end of backward."""

    def __init__(self, root: UnitState) -> None:
        self.root = root
        self.order: list[UnitState] = []  # as forwards ended, what backward goes through from the end
        self.units: list[UnitState] = []
        self.queued = False
        self.is_last_backward = True
        self.lock = threading.RLock()

    def begin_backward(self) -> None:
        """Within a backward: be called at its end."""
        if not self.queued:
            self.queued = True
            _native._queue_callback(self.finish)

    def finish(self) -> None:
        """A backward is over."""
        self.queued = False
        if not self.is_last_backward:
            return
        for unit in self.units:
            for group in unit.groups:
                group.flush()
        for unit in self.units:
            for group in unit.groups:
                group.after_backward()
        self.order.clear()

    def reset(self) -> None:
        """Give up an iteration that failed."""
        self.queued = False
        self.order.clear()
        for unit in self.units:
            unit.to_run = set()
            for group in unit.groups:
                group.forget()


class UnitState:
    """A module (or several) whose parameters are gathered together, and what is to happen around it."""

    def __init__(self, modules: Sequence[Any], groups: Sequence[ParamGroup]) -> None:
        self.modules, self.groups = list(modules), list(groups)
        self.param_dtype: Any = None
        self.output_dtype: Any = None
        self.casts_inputs = self.casts_root_inputs = False
        self.reshards_after_forward: bool | None = None  # None: unless it is the root
        self.forward_prefetch: list[UnitState] = []
        self.backward_prefetch: list[UnitState] | None = None  # None: what comes next in backward
        self.prefetches_backward = self.prefetches_early = True
        self.iteration: Iteration | None = None
        self.to_run: set[int] = set()
        self.depth = 0
        for group in groups:
            group.on_backward = self._in_backward

    # --- the model ------------------------------------------------------------------------------------------------

    def join_model(self) -> Iteration:
        """The first unit that runs is the root of those below it."""
        if self.iteration is None:
            self.iteration = Iteration(self)
            for unit in _units_below(self.modules):
                if unit is not self and unit.iteration is not None and unit.iteration.root is not unit:
                    continue
                unit.iteration = self.iteration
                self.iteration.units.append(unit)
        return self.iteration

    @property
    def is_root(self) -> bool:
        """Whether it is the outermost unit of its model."""
        return self.iteration is not None and self.iteration.root is self

    def _reshards(self) -> bool:
        return not self.is_root if self.reshards_after_forward is None else self.reshards_after_forward

    # --- forward --------------------------------------------------------------------------------------------------

    def run(self, module: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A forward of a module of the unit, with whole parameters."""
        if self.depth:  # forward of a method that the module's forward calls, or of itself
            return call(*args, **kwargs)
        self.depth += 1
        try:
            args, kwargs = self._before_forward(args, kwargs)
            with watching():
                output = call(*args, **kwargs)
            return self._after_forward(module, output)
        except BaseException:
            self.to_run = set()
            if not any(group.in_backward for group in self.groups):  # a second run for backward may end early
                for group in self.groups:
                    group.reshard()
            raise
        finally:
            self.depth -= 1

    def _before_forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        iteration = self.join_model()
        if self.is_root and not iteration.queued:
            iteration.order.clear()
        if not self.to_run:
            self.to_run = {id(module) for module in self.modules}
        if self.param_dtype is not None and (self.casts_inputs or (self.casts_root_inputs and self.is_root)):
            args, kwargs = tree_map(self._cast_to(self.param_dtype), (args, kwargs))
        for group in self.groups:
            group.unshard(async_op=True)
        for unit in self.forward_prefetch:
            unit.fetch()
        for group in self.groups:
            group.wait()
            if not group.registered or not group.in_backward:
                group.register()
        return self._passed(args, kwargs)

    def _within_backward(self) -> bool:
        """Whether this is a second run of the module, for backward."""
        return any(group.in_backward for group in self.groups)

    @staticmethod
    def _cast_to(dtype: Any) -> Callable[[Any], Any]:
        def cast(value: Any) -> Any:
            return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

        return cast

    def _passed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Where not all of a group is trained its own gradient does not tell that backward is over: its inputs' do."""
        frozen = [group for group in self.groups if not all(group.layout.needs_grad())]
        for group in self.groups:
            group.awaits = {"gradients"} if any(group.layout.needs_grad()) else set()
        if not frozen or not ts.is_grad_enabled():
            return args, kwargs
        leaves, spec = tree_flatten((args, kwargs))
        wanted = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if not wanted:
            return args, kwargs

        for group in frozen:
            group.awaits.add("inputs")

        def tell() -> None:
            for group in frozen:
                group.came("inputs")

        for k, passed in zip(wanted, Passed.apply(tell, *(leaves[k] for k in wanted)), strict=True):
            leaves[k] = passed
        changed: tuple[Any, Any] = tree_unflatten(leaves, spec)
        return changed

    def _after_forward(self, module: Any, output: Any) -> Any:
        assert self.iteration is not None
        if self.output_dtype is not None:
            output = tree_map(self._cast_to(self.output_dtype), output)
        again = self._within_backward()
        self.to_run.discard(id(module))
        if ts.is_grad_enabled():
            for tensor in tensors_of(output):
                if tensor.requires_grad:
                    tensor.register_hook(self._before_backward)
        if again:  # a second run, for backward: what it recorded is wanted at once
            return output
        if not self.to_run and ts.is_grad_enabled():
            self.iteration.order.append(self)
        if not self.to_run:
            for group in self.groups:
                if self._reshards():
                    group.reshard(for_backward=ts.is_grad_enabled())
                elif not ts.is_grad_enabled():  # no backward follows
                    group.put_back()
        return output

    # --- backward -------------------------------------------------------------------------------------------------

    def _in_backward(self) -> None:
        assert self.iteration is not None
        self.iteration.begin_backward()
        if not self.prefetches_early:
            for unit in self._next_in_backward(self.iteration):
                unit.fetch()

    def _before_backward(self, grad: Tensor) -> None:
        iteration = self.iteration
        assert iteration is not None
        iteration.begin_backward()
        if all(group.in_backward for group in self.groups):
            return
        for group in self.groups:
            group.before_backward()
        if self.prefetches_early:
            for unit in self._next_in_backward(iteration):
                unit.fetch()

    def _next_in_backward(self, iteration: Iteration) -> list[UnitState]:
        if self.backward_prefetch is not None:
            return self.backward_prefetch
        if not self.prefetches_backward or self not in iteration.order:
            return []
        last = len(iteration.order) - 1 - iteration.order[::-1].index(self)
        del iteration.order[last:]
        return iteration.order[-1:]

    def fetch(self) -> None:
        """Begin to gather the parameters."""
        for group in self.groups:
            if group.unshards_in_backward:
                group.unshard(async_op=True)


def _units_below(modules: Sequence[Any]) -> list[UnitState]:
    found: dict[int, UnitState] = {}
    for top in modules:
        for unit in states_of(top):
            found.setdefault(id(unit), unit)
    return list(found.values())


def states_of(module: Any) -> Iterator[UnitState]:
    """The units in a model, outermost first."""
    seen: set[int] = set()
    for each in module.modules():
        unit = each.__dict__.get("_fsdp_unit")
        if unit is not None and id(unit) not in seen:
            seen.add(id(unit))
            yield unit
