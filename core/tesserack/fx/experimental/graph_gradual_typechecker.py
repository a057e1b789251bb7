"""Types of a graph's values by their sizes, of which some may be unknown: checked, and related to each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tesserack import Tensor
from tesserack.fx.experimental._gradual_rules import (
    FUNCTIONS,
    MODULES,
    broadcast_types,
    calculate_out_dimension,
    get_greatest_upper_bound,
    pair,
)
from tesserack.fx.experimental.refinement_types import Equality
from tesserack.fx.experimental.unification import Var
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node, map_arg
from tesserack.fx.tensor_type import Dyn, TensorType

__all__ = ["GraphTypeChecker", "Refine", "broadcast_types", "calculate_out_dimension", "get_greatest_upper_bound"]


class GraphTypeChecker:
    """Gives every node a type, by what placeholders and steps are annotated with.

    >>> from tesserack import fx
    >>> import tesserack as ts
    >>> traced = fx.symbolic_trace(lambda x: ts.flatten(x, 1))
    >>> next(iter(traced.graph.nodes)).type = TensorType((2, 3, Dyn))
    >>> GraphTypeChecker({}, traced).type_check(), [node.type for node in traced.graph.nodes][-1]
    (True, TensorType[(2, Dyn)])
    """

    def __init__(self, env: Any, traced: GraphModule) -> None:
        self.env, self.traced = env, traced

    def type_check(self) -> bool:
        """True; ``TypeError`` where a step does not take what it is given, ``RuntimeError`` for one without a rule."""
        for node in self.traced.graph.nodes:
            self.type_check_node(node)
        return True

    def type_check_node(self, n: Node) -> Any:
        """The type of one node, which it has from then on."""
        n.type = Dyn if n.type is None else n.type
        if n.op == "output":
            n.type = map_arg(n.args[0], lambda a: a.type)
        elif n.op == "get_attr":
            found: Any = self.traced
            for name in n.target.split("."):
                found = getattr(found, name)
            n.type = TensorType(tuple(found.shape)) if isinstance(found, Tensor) else n.type
        elif n.op == "call_function":
            n.type = self._rule(FUNCTIONS, getattr(n.target, "__name__", ""), n)(n)
        elif n.op == "call_module":
            module = self.traced.get_submodule(n.target)
            n.type = self._rule(MODULES, type(module).__name__, n)(n, module)
        elif n.op != "placeholder":
            raise NotImplementedError(f"Method {n.target} not yet implemented")
        return n.type

    def _rule(self, rules: dict[str, Callable[..., Any]], name: str, n: Node) -> Callable[..., Any]:
        if name not in rules:
            raise RuntimeError(f"No inference rule registered for target {n.target}!")
        return rules[name]


# --- relations -------------------------------------------------------------------------------------------------------


def _sizes(n: Node) -> tuple[Any, Any] | None:
    """The sizes of a step's first argument and its own, where both are known to have some."""
    both = n.args[0].type, n.type
    return (both[0].__args__, both[1].__args__) if all(isinstance(t, TensorType) for t in both) else None


def _first(count: int | None) -> Callable[[Node], list[Equality]]:
    """A step that keeps the first sizes, or all."""

    def equal(n: Node) -> list[Equality]:
        both = _sizes(n)
        pairs = zip(*both, strict=False) if both else ()
        return [Equality(a, b) for a, b in [*pairs][:count]]

    return equal


def _elementwise(n: Node) -> list[Equality]:
    types = [arg.type if isinstance(arg, Node) else None for arg in n.args]
    if len(types) < 2 or not all(isinstance(t, TensorType) for t in (*types, n.type)):
        return []
    first, second = broadcast_types(*types[:2])
    whole = zip(first.__args__, second.__args__, n.type.__args__, strict=False)
    return [Equality(a, made) for a, b, made in whole if a == b]


def _flattened(n: Node) -> list[Equality]:
    both = _sizes(n)
    if both is None:
        return []
    sizes, made = both
    start = (n.args[1] if len(n.args) > 1 else n.kwargs.get("start_dim", 0)) % len(sizes)
    end = (n.args[2] if len(n.args) > 2 else n.kwargs.get("end_dim", -1)) % len(sizes)
    tail = len(sizes) - end - 1
    kept = [*zip(made[:start], sizes[:start], strict=True)]
    kept += [*zip(made[len(made) - tail :], sizes[end + 1 :], strict=True)] if tail else []
    return [Equality(a, b) for a, b in kept]


_RELATIONS: dict[str, Callable[[Node], list[Equality]]] = {
    **dict.fromkeys(("add", "iadd"), _elementwise),
    **dict.fromkeys(("Conv2d", "Linear"), _first(1)),
    **dict.fromkeys(("AdaptiveAvgPool2d", "MaxPool2d"), _first(2)),
    **dict.fromkeys(("BatchNorm2d", "ReLU"), _first(None)),
    "flatten": _flattened,
}


class Refine:
    """Unknown sizes as variables, and which of them are equal."""

    def __init__(self, traced: GraphModule) -> None:
        self.traced = traced
        self.constraints: list[Equality] = []
        self.symbol_iter = itertools.count()

    def refine(self) -> bool:
        """Give every unknown size a variable, and collect :attr:`constraints`."""
        for node in self.traced.graph.nodes:
            self.refine_node(node)
        return True

    def refine_node(self, n: Node) -> None:
        """The variables and equalities of one node."""
        if n.op == "output":
            n.type = map_arg(n.args[0], lambda a: a.type)
            return
        n.type = self.replace_dyn_with_fresh_var(Dyn if n.type is None else n.type)
        rule = _RELATIONS.get(self._name(n))
        if rule is not None:
            self.constraints += rule(n)

    def _name(self, n: Node) -> str:
        if n.op == "call_module":
            return type(self.traced.get_submodule(n.target)).__name__
        return getattr(n.target, "__name__", "") if n.op == "call_function" else ""

    def replace_dyn_with_fresh_var(self, typ: Any) -> Any:
        """A type with a variable for each thing unknown."""
        if typ == Dyn:
            return Var(next(self.symbol_iter))
        if isinstance(typ, TensorType):
            return TensorType(tuple(self.replace_dyn_with_fresh_var(size) for size in typ.__args__))
        if isinstance(typ, (list, tuple)):
            return type(typ)(self.replace_dyn_with_fresh_var(item) for item in typ)
        return typ

    def convert_to_sympy_symbols(self, typ: Any) -> Any:
        """A type with sympy's symbols for variables. ``ImportError`` without sympy."""
        if isinstance(typ, Var):
            import sympy

            return sympy.symbols(str(typ))
        if isinstance(typ, TensorType):
            return TensorType(tuple(self.convert_to_sympy_symbols(size) for size in typ.__args__))
        if isinstance(typ, (list, tuple)):
            return type(typ)(self.convert_to_sympy_symbols(item) for item in typ)
        return typ

    def symbolic_relations(self) -> bool:
        """Give sizes that convolutions make of unknown ones as expressions of those."""
        for node in self.traced.graph.nodes:
            self.infer_symbolic_relations(node)
        return True

    def infer_symbolic_relations(self, n: Node) -> None:
        """The expressions of one node."""
        if n.op == "output":
            n.type = map_arg(n.args[0], lambda a: a.type)
            return
        n.type = self.convert_to_sympy_symbols(n.type)
        if self._name(n) == "Conv2d" and _sizes(n) is not None:
            n.type = self._convolved(n, self.traced.get_submodule(n.target))

    def _convolved(self, n: Node, module: Any) -> TensorType:
        import sympy

        names = ("padding", "dilation", "kernel_size", "stride")
        made = list(n.type.__args__)
        for k, size in enumerate(n.args[0].type.__args__[2:]):
            padding, dilation, kernel, stride = (pair(getattr(module, name))[k] for name in names)
            if isinstance(size, sympy.Basic):
                made[2 + k] = sympy.floor((size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1)
        return TensorType(tuple(made))
