"""Sizes that are equal, in the types of a whole graph."""

from __future__ import annotations

from typing import Any

from tesserack.fx.experimental.graph_gradual_typechecker import Refine
from tesserack.fx.experimental.refinement_types import Equality
from tesserack.fx.experimental.unification import reify, unify
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.tensor_type import TensorType

__all__ = ["check_for_type_equality", "infer_symbolic_types", "infer_symbolic_types_single_pass", "unify_eq"]


def unify_eq(list_of_eq: list[Equality]) -> dict[Any, Any]:
    """What variables stand for, so that all equalities hold. ``TypeError`` where they cannot."""
    found = unify([eq.lhs for eq in list_of_eq], [eq.rhs for eq in list_of_eq], {})
    if not isinstance(found, dict):
        raise TypeError(f"unify_eq: expected sizes that can be equal, got {list_of_eq}")
    return found


def _substituted(kind: Any, known: dict[Any, Any]) -> Any:
    if isinstance(kind, TensorType):
        return TensorType(tuple(reify(size, known) for size in kind.__args__))
    if isinstance(kind, (list, tuple)):
        return type(kind)(_substituted(item, known) for item in kind)
    return reify(kind, known)


def infer_symbolic_types_single_pass(traced: GraphModule) -> None:
    """Put into types what follows from the steps once."""
    refined = Refine(traced)
    refined.refine()
    known = unify_eq(refined.constraints)
    for node in traced.graph.nodes:
        node.type = _substituted(node.type, known)


def infer_symbolic_types(traced: GraphModule) -> None:
    """Put into types what follows from the steps, twice, and expressions for what convolutions make of sizes."""
    infer_symbolic_types_single_pass(traced)
    infer_symbolic_types_single_pass(traced)
    Refine(traced).symbolic_relations()


def check_for_type_equality(g1: Graph, g2: Graph) -> bool:
    """Whether the nodes of two graphs have the same types."""
    return all(n.type == m.type for n, m in zip(g1.nodes, g2.nodes, strict=False))
