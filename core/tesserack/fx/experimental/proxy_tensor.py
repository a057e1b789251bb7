"""Tracing below autograd: a function runs, on data or on fake tensors, and its operators become nodes of a graph."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

from tesserack import Tensor
from tesserack.aten.fake.fake_tensor import FakeTensorMode
from tesserack.fx._codegen import PyTreeCodeGen, PyTreeInfo
from tesserack.fx._lazy_graph_module import _make_graph_module
from tesserack.fx.experimental._proxy_tracer import (
    ProxyTorchDispatchMode,
    PythonKeyTracer,
    disable_proxy_modes_tracing,
    get_proxy_mode,
    maybe_disable_fake_tensor_mode,
    mode_of,
)
from tesserack.fx.graph_module import GraphModule
from tesserack.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

__all__ = [
    "ProxyTorchDispatchMode",
    "PythonKeyTracer",
    "disable_proxy_modes_tracing",
    "get_innermost_proxy_mode",
    "get_isolated_graphmodule",
    "get_proxy_mode",
    "make_fx",
    "maybe_disable_fake_tensor_mode",
    "py_sym_types",
]

py_sym_types: tuple[type, ...] = ()  # numbers that stand for sizes: there are none
get_innermost_proxy_mode = get_proxy_mode


def _parameters(f: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    """Names of the arguments: those of the parameters, unless some are given by a star."""
    try:
        bound = inspect.signature(f).bind(*args)
    except (TypeError, ValueError):
        bound = None
    starred = bound is None or any(p.kind is p.VAR_POSITIONAL for p in bound.signature.parameters.values())
    return [f"arg{k}" for k in range(len(args))] if bound is None or starred else [*bound.arguments]


def _names(parameters: list[str], args: tuple[Any, ...]) -> list[str]:
    """Names of placeholders, one for each leaf of the arguments."""
    counts = [len(tree_flatten(arg)[0]) for arg in args]
    return [f"{name}_{k + 1}" for name, count in zip(parameters, counts, strict=True) for k in range(count)]


def make_fx(
    f: Callable[..., Any],
    decomposition_table: dict[Any, Any] | None = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    *,
    pre_dispatch: bool = False,
    record_module_stack: bool = False,
    _allow_fake_constant: bool = False,
    _error_on_data_dependent_ops: bool = True,
) -> Callable[..., GraphModule]:
    """A function that runs ``f`` on its arguments and returns the graph of what ran, as a :class:`GraphModule`.

    Operators are those that the dispatcher shows below autograd: gradients that ``f`` takes become part of the graph.
    Branches that Python took and numbers that it read are as they were for these arguments. With ``tracing_mode``
    "fake" or "symbolic" nothing is computed, and what asks for values raises. "symbolic" gives a graph for other sizes:
    ``f`` runs at several, and what differs is told from the sizes of the arguments, from 2 on, and from whole numbers
    among them; sizes that decide what ``f`` does, or that it does not take to differ, are held, with a warning that
    names them. ``decomposition_table`` gives functions that operators are made of. The graph's placeholders are the
    leaves of the arguments of ``f``, in order; where these are nested, the module takes them, and gives results, nested
    as ``f`` does.

    >>> import tesserack as ts
    >>> graph = make_fx(lambda x: (x * 2).relu())(ts.ones(3))
    >>> [str(node.target) for node in graph.graph.nodes]
    ['x_1', 'aten.mul.Tensor', 'aten.relu.default', 'output']
    >>> graph(ts.tensor([-1.0, 4.0]))
    tensor([0., 8.])
    >>> graph = make_fx(lambda x: x[: x.shape[0] // 2] * x.shape[0], tracing_mode="symbolic")(ts.ones(4))
    >>> graph(ts.ones(6))
    tensor([6., 6., 6.])
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise AssertionError(f"make_fx: expected tracing_mode to be 'real', 'fake' or 'symbolic', got {tracing_mode!r}")

    def traced(*args: Any) -> GraphModule:
        leaves, spec = tree_flatten(args)
        if tracing_mode == "symbolic":
            from tesserack.fx.export._several import at_all_sizes  # few programs need it

            tracer = at_all_sizes(lambda leaves, mode: run(leaves, mode, spec), leaves)
        else:
            fake_mode = None if tracing_mode == "real" else mode_of(leaves)
            if fake_mode is not None:
                leaves = [fake_mode.from_tensor(x) if isinstance(x, Tensor) else x for x in leaves]
            tracer = run(leaves, fake_mode, spec)
        return _make_graph_module(tracer.root, tracer.graph, getattr(f, "__name__", type(f).__name__))

    def run(leaves: list[Any], fake_mode: FakeTensorMode | None, spec: TreeSpec) -> PythonKeyTracer:
        tracer = PythonKeyTracer()
        args = tree_unflatten(leaves, spec)
        parameters = _parameters(f, args)
        for name, leaf in zip(_names(parameters, args), leaves, strict=True):
            tracer.placeholder(name, leaf)
        mode = ProxyTorchDispatchMode(
            tracer,
            "fake" if tracing_mode == "symbolic" else tracing_mode,
            pre_dispatch,
            _error_on_data_dependent_ops=_error_on_data_dependent_ops,
            decomposition_table=decomposition_table,
        )
        with fake_mode or contextlib.nullcontext(), mode:
            results = f(*args)
        annotation = getattr(f, "__annotations__", {}).get("return")
        if any(not child.is_leaf() for child in spec.children_specs):
            annotation = None  # of what is nested, not of the list that the graph returns
            results, out_spec = tree_flatten(results)
            tracer.graph.set_codegen(PyTreeCodeGen(PyTreeInfo(parameters, spec, out_spec)))
        tracer.finish(results, annotation)
        return tracer

    return traced


def get_isolated_graphmodule(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tracing_mode: str = "real",
    decomposition_table: dict[Any, Any] | None = None,
) -> GraphModule:
    """What a call does, as a graph of all its leaves, traced apart from graphs that are being made.

    >>> import tesserack as ts
    >>> get_isolated_graphmodule(ts.add, (ts.ones(1), 2), {})(ts.zeros(1), 2)
    tensor([2.])
    """
    leaves, spec = tree_flatten((args, kwargs))

    def unpacked(*flat: Any) -> Any:
        given, named = tree_unflatten(list(flat), spec)
        return func(*given, **named)

    with disable_proxy_modes_tracing():
        return make_fx(unpacked, decomposition_table, tracing_mode)(*leaves)
