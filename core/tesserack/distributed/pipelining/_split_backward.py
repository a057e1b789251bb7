"""A backward pass in two: first the gradients of a stage's inputs, which another rank waits for, later its parameters'.

Qi et al., "Zero Bubble Pipeline Parallelism", 2024. On the first pass, gradients are kept where a parameter's
way leaves the way to the inputs; on the second, each parameter's goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd.graph import GradientEdge, after, below

__all__ = ["SplitBackward"]


def _leaf(node: Any) -> Any:
    """The tensor whose gradient a node adds up; None of other nodes."""
    return getattr(node, "variable", None)


class SplitBackward:
    """The backward pass of one microbatch, from ``outputs`` with the gradients ``grads`` (None: a loss)."""

    def __init__(self, outputs: Sequence[Tensor], grads: Sequence[Tensor] | None) -> None:
        self._outputs = list(outputs)
        self._grads = [ts.ones_like(x) for x in outputs] if grads is None else list(grads)
        self._kept: dict[int, tuple[Any, Any]] = {}  # nodes where ways part, and the gradients that came to them
        self._ways: dict[int, list[tuple[Tensor, int]]] = {}  # by the place among those: parameters that go on there
        self._late: list[Tensor] = []  # parameters that gradients come to on several ways

    def of_inputs(self, inputs: Sequence[Tensor], parameters: Sequence[Tensor]) -> list[Tensor | None]:
        """Gradients of inputs; those of parameters are prepared."""
        if not inputs or not self._outputs:
            self._late = list(parameters)
            return [None] * len(inputs)
        nodes = below([x.grad_fn for x in self._outputs if x.grad_fn is not None])
        partings = self._partings(nodes, inputs, parameters)
        handles = [node.register_prehook(self._keeping(at, node)) for at, node in enumerate(partings)]
        try:
            found = ts.autograd.grad(self._outputs, inputs, self._grads, retain_graph=True, allow_unused=True)
        finally:
            for handle in handles:
                handle.remove()
        return list(found)

    def _partings(self, nodes: Sequence[Any], inputs: Sequence[Tensor], parameters: Sequence[Tensor]) -> list[Any]:
        """Nodes that lead to inputs and, by another way, to parameters; what each parameter goes on from is noted."""
        given, wanted = {id(x) for x in inputs}, {id(p): p for p in parameters}
        leads: dict[Any, bool] = {}
        reached: dict[Any, frozenset[int]] = {}  # of nodes that lead to no input: the parameters there
        partings: list[Any] = []
        at_partings: dict[int, list[int]] = {}
        for node in nodes:
            leaf = _leaf(node)
            leads[node] = id(leaf) in given or any(leads[n] for n in after(node))
            aside = [reached[n] for n in after(node) if not leads[n]]
            mine = frozenset().union(*aside, {id(leaf)} & wanted.keys() if leaf is not None else ())
            if not leads[node]:
                reached[node] = mine
            elif mine:
                for key in mine:
                    at_partings.setdefault(key, []).append(len(partings))
                partings.append(node)
        for key, places in at_partings.items():
            if len(places) == 1:
                self._ways.setdefault(places[0], []).append((wanted[key], key))
        self._late = [p for key, p in wanted.items() if len(at_partings.get(key, ())) != 1]
        return partings

    def _keeping(self, at: int, node: Any) -> Any:
        def keep(grads: Any) -> None:
            self._kept[at] = node, grads

        return keep

    def of_parameters(self) -> None:
        """Gradients of the parameters, added to ``grad``."""
        for at, members in self._ways.items():
            if at in self._kept:
                node, grads = self._kept[at]
                came = [(k, grad) for k, grad in enumerate(grads) if grad is not None]
                edges = [GradientEdge(node, k) for k, _ in came]
                _add([p for p, _ in members], edges, [grad for _, grad in came])
        if self._late and self._outputs:
            _add(self._late, self._outputs, self._grads)
        self._kept.clear()
        self._outputs.clear()


def _add(parameters: Sequence[Tensor], places: Sequence[Any], grads: Sequence[Tensor]) -> None:
    found = ts.autograd.grad(places, parameters, grads, retain_graph=True, allow_unused=True)
    for parameter, grad in zip(parameters, found, strict=True):
        if grad is not None:
            parameter.grad = grad if parameter.grad is None else parameter.grad + grad
