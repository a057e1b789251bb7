"""What ``func.functionalize`` does to a function of which a graph is being made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack import Tensor, _native
from tesserack.aten.operators import namespace
from tesserack.func._batched import bottom
from tesserack.func._modules import use_functional_rule
from tesserack.fx.experimental._proxy_tracer import (
    ProxyTorchDispatchMode,
    PythonKeyTracer,
    RetracingInterpreter,
    disable_proxy_modes_tracing,
    get_proxy_mode,
)
from tesserack.fx.export._functional import Functional, viewed
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node
from tesserack.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["functionalized"]

aten = namespace("aten")
_CAPTURED = (
    "functionalize: expected a function that writes to its arguments and to what it makes itself alone, got a write to "
    "a tensor that it captured; give it the tensor as an argument"
)


def functionalized(func: Callable[..., Any], remove: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results of the function, whose steps become nodes without writes; NotImplemented where no graph is made."""
    mode = get_proxy_mode()
    leaves, spec = tree_flatten((args, kwargs))
    if mode is None or not mode.enable_tracing or any(isinstance(x, Tensor) and bottom(x) is not x for x in leaves):
        return NotImplemented
    tracer = PythonKeyTracer(mode.tracer)
    flat, out_spec = _traced(func, mode, tracer, leaves, spec)
    tracer.finish(flat)
    if any(_resizes(node) for node in tracer.graph.nodes):  # no value has another size later
        return NotImplemented
    with disable_proxy_modes_tracing():  # which calls operators to see what they give
        functional = Functional(tracer.graph)
        written = [node for node in functional.changed if node.op == "placeholder"]
        values = [functional.read(node) for node in written]
    functional.graph.create_node("output", "output", ((functional.results, values),), {})
    functional.graph.eliminate_dead_code()
    if remove == "mutations_and_views":
        _copy_views(functional.graph)
    given = [*leaves, *tracer.lifted]
    results, values = _run_again(mode, GraphModule(tracer.root, functional.graph), given)
    places = [node for node in tracer.graph.nodes if node.op == "placeholder"]
    for node, value in zip(written, values, strict=True):
        given[places.index(node)].copy_(value)
    return tree_unflatten([*results], out_spec)


def _traced(
    func: Callable[..., Any], mode: ProxyTorchDispatchMode, tracer: PythonKeyTracer, leaves: list[Any], spec: Any
) -> tuple[list[Any], Any]:
    """One call on copies of the arguments, which ``tracer`` writes down."""
    with disable_proxy_modes_tracing():
        copies = [x.detach().clone() if isinstance(x, Tensor) else x for x in leaves]
        for place, value in enumerate(copies):
            tracer.placeholder(f"arg{place}_1", value)
        _native._push_write_guard([x for x in copies if isinstance(x, Tensor)], _CAPTURED)
        try:
            with ProxyTorchDispatchMode(tracer, mode.tracing_mode, decomposition_table=mode.decomposition_table):
                args, kwargs = tree_unflatten(copies, spec)
                return tree_flatten(func(*args, **kwargs))
        finally:
            _native._pop_write_guard()


def _run_again(mode: ProxyTorchDispatchMode, module: GraphModule, given: list[Any]) -> Any:
    before = mode.tracer.carried
    try:
        return RetracingInterpreter(module).run(*given)
    finally:
        mode.tracer.carried = before


def _resizes(node: Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    return packet is not None and packet.__name__ in ("resize_", "resize_as_", "set_")


def _copy_views(graph: Graph) -> None:
    """A copy after each view, for all that uses it."""
    for node in [*graph.nodes]:
        if viewed(node) is None or not isinstance(node.meta.get("val"), Tensor):
            continue
        with graph.inserting_after(node):
            copy = graph.create_node("call_function", aten.clone.default, (node,), {}, name="clone")
        copy.meta = {**node.meta}
        node.replace_all_uses_with(copy, lambda user, copy=copy: user is not copy)


use_functional_rule(functionalized)
