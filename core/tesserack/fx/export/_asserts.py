"""Conditions on values that a program states, as by ``torch._check``: steps of its graph that raise where one fails."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tesserack.aten.operators import namespace
from tesserack.fx.experimental._proxy_tracer import PythonKeyTracer, get_proxy_mode
from tesserack.fx.export._expression import SymInt
from tesserack.fx.graph import Graph
from tesserack.fx.node import Node

__all__ = ["ASSERT", "named", "reader", "states"]

_NUMBER = namespace("aten")._local_scalar_dense.default
_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


ASSERT = namespace("aten")._assert_scalar.default


def states(tracer: PythonKeyTracer) -> Callable[[Any, Any, Any], None]:
    """What writes a comparison that holds into the graph of a trace, where it is of values that no trace knows."""

    def state(function: Any, one: Any, other: Any) -> None:
        mode = get_proxy_mode()
        if mode is None or mode.tracer is not tracer:  # in a branch, which may not be taken
            return
        compared = _step(tracer, function, (_operand(tracer, one), _operand(tracer, other)), True)
        tracer._note(tracer.graph.create_node("call_function", ASSERT, (compared, ""), {}), None)

    return state


def _step(tracer: PythonKeyTracer, function: Any, args: tuple[Any, ...], value: Any) -> Node:
    node = tracer.graph.create_node("call_function", function, args, {}, name=function.__name__)
    tracer._note(node, value)
    return node


def _operand(tracer: PythonKeyTracer, value: Any) -> Any:
    """What is compared, made of the node that reads it, whether or not it is the same number in every trace."""
    plain = float(value) if isinstance(value, float) else int(value)
    if getattr(value, "made_of", None) is None:
        return plain
    function, *of = value.step or (None,)
    if of:
        return _step(tracer, function, tuple(_operand(tracer, x) for x in of), plain)
    return plain if function is None else function


def reader(tracer: PythonKeyTracer) -> Callable[[], Any]:
    """What gives the node that read the last number, in the graph of a trace; None within a branch."""

    def read() -> Any:
        mode = get_proxy_mode()
        if mode is None or mode.tracer is not tracer:
            return None
        return next((n for n in reversed([*tracer.graph.nodes]) if n.target is _NUMBER), None)

    return read


def named(graph: Graph) -> None:
    """Conditions are told as expressions; those that no value decides any more go."""
    for node in [*graph.nodes]:
        if node.op != "call_function" or node.target is not ASSERT:
            continue
        compared = node.args[0]
        if not isinstance(compared, Node) or not any(isinstance(arg, Node) for arg in compared.args):
            graph.erase_node(node)
            if isinstance(compared, Node) and not compared.users:
                graph.erase_node(compared)
            continue
        one, other = (_told(arg) for arg in compared.args)
        told = f"{one} {_SIGNS[compared.target.__name__]} {other}"
        node.args = (compared, f"Runtime assertion failed for expression {told} on node '{compared.name}'")


def _told(arg: Any) -> str:
    value = arg.meta.get("val") if isinstance(arg, Node) else arg
    if isinstance(value, SymInt):
        return value.expression
    sign = _ARITHMETIC.get(arg.target) if isinstance(arg, Node) else None
    if sign is None:
        return str(arg)
    parts = [f"({told})" if " " in told else told for told in map(_told, arg.args)]
    return f" {sign} ".join(parts) if len(parts) > 1 else f"{sign}{parts[0]}"


_ARITHMETIC: dict[Any, str] = {
    operator.mul: "*", operator.add: "+", operator.sub: "-", operator.neg: "-", operator.truediv: "/",
    operator.floordiv: "//", operator.mod: "%",
}  # fmt: skip
