"""A call of an operator as its sharding rule sees it, and how rules are declared."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from tesserack import _native
from tesserack.distributed.device_mesh import DeviceMesh
from tesserack.distributed.tensor._spec import DTensorSpec
from tesserack.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard
from tesserack.ops.registry import said

__all__ = ["COMPUTE", "HANDLERS", "NOTED", "RULES", "Call", "Strategy", "compute", "cost", "handler", "rule", "rule_of"]

R = Replicate()


class Strategy(NamedTuple):
    """Placements along one dim of a mesh under which an operator on the ranks' parts gives parts of the result: of the
    outputs (one for all of them, or one each), and of the tensors among the arguments in their order."""

    outputs: tuple[Placement, ...]
    inputs: tuple[Placement, ...]


class Call:
    """The operator and its arguments, with a :class:`DTensorSpec` in the place of each tensor.

    ``specs`` are those in their order, ``outs`` the results' outlines, ``targets`` the placements that the inputs are
    to have, as far as they are chosen (a list for each, with one for each dim of the mesh so far), ``placed`` those of
    the outputs.
    """

    def __init__(self, name: str, args: Any, kwargs: Any, specs: list[DTensorSpec], mesh: DeviceMesh) -> None:
        self.name, self.args, self.kwargs, self.specs, self.mesh = name, args, kwargs, specs, mesh
        self.outs: list[Any] = []
        self.targets: list[list[Placement]] = [[] for _ in specs]
        self.placed: list[list[Placement]] = []
        self.written: tuple[int, ...] = ()
        self.notes: list[Any] = []  # of each input, what another operator left on it

    def all(self, out: Placement, *inputs: Placement) -> Strategy:
        """One placement for the outputs, and those of the inputs (one for all of them, or one each)."""
        return Strategy((out,), inputs if len(inputs) == len(self.specs) else inputs * len(self.specs))

    def now(self, index: int, mesh_dim: int) -> Placement:
        """How an input lies along a dim of the mesh."""
        placement: Placement = self.specs[index].placements[mesh_dim]
        return placement

    def before(self, index: int, mesh_dim: int) -> tuple[list[int], bool]:
        """An input's sizes on a rank before it is cut along a dim of the mesh, and whether all cuts are even."""
        return _sizes(self.specs[index].shape, self.targets[index][:mesh_dim], self.mesh)

    def out_before(self, shape: Sequence[int], mesh_dim: int) -> tuple[list[int], bool]:
        """The same of the first output, of this shape."""
        return _sizes(shape, self.placed[0][:mesh_dim] if self.placed else [], self.mesh)

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by position or by keyword."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)


def _sizes(shape: Sequence[int], placements: Sequence[Placement], mesh: DeviceMesh) -> tuple[list[int], bool]:
    sizes, even = list(shape), True
    for mesh_dim, placement in enumerate(placements):
        if isinstance(placement, Shard):
            even = even and sizes[placement.dim] % mesh.size(mesh_dim) == 0
            sizes[placement.dim] = sum(n for _, n in placement.parts(sizes[placement.dim], mesh.size(mesh_dim))[0])
    return sizes, even


Rule = Callable[[Call, int], Iterable[Strategy]]
RULES: dict[str, Rule] = {}  # by an operator's name, with or without overload
COMPUTE: dict[str, Callable[..., Any] | None] = {}  # what a rank computes, where it is not the operator on its parts
HANDLERS: dict[str, Callable[..., Any]] = {}  # operators that are done whole
NOTED: set[str] = set()  # operators whose plans depend on what another left on their inputs


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Decorator: ``rule(call, mesh_dim)`` gives the strategies of these operators, those to be preferred first; that
    everything is replicated need not be said."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def compute(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: ``compute(plan, func, args, kwargs)`` on a rank's parts."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        COMPUTE.update(dict.fromkeys(names, function))
        return function

    return register


def handler(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: ``handler(func, args, kwargs)`` is given the DTensors themselves."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        HANDLERS.update(dict.fromkeys(names, function))
        return function

    return register


@functools.cache
def _pointwise() -> frozenset[str]:
    names = (record["name"].partition(".")[0] for record in _native._operators() if record["pointwise"])
    return said("elementwise").union(names)


def rule_of(name: str) -> Rule | None:
    """The rule of an operator, by its full name (``"add.Tensor"``) or its base name."""
    base = name.partition(".")[0]
    found = RULES.get(name) or RULES.get(base)
    if found is None and (base in _pointwise() or base.rstrip("_") in _pointwise() or "_grad" in base):
        return RULES["pointwise"]
    return found


def cost(spec: DTensorSpec, mesh_dim: int, target: Placement) -> float:
    """About how many bytes a rank sends to bring a tensor to a placement along a dim of the mesh."""
    current: Placement = spec.placements[mesh_dim]
    ranks = spec.mesh.size(mesh_dim)
    if current == target:
        return 0.0
    size: float = math.prod(spec.shape) * spec.dtype.itemsize * (ranks - 1) / ranks + 1e-3
    if isinstance(current, Replicate):
        return 1e-4 if isinstance(target, Shard) else 1e-1 * size
    if isinstance(target, Partial):
        return math.inf
    if isinstance(current, Partial):
        return size if type(target) is Shard else 2 * size
    if isinstance(target, Replicate):
        return size
    return size + 1.0 if type(current) is type(target) is Shard else 2 * size
