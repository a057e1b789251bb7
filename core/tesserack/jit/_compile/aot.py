"""Compilers that take a forward and a backward graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd import Function
from tesserack.fx.experimental.proxy_tensor import make_fx
from tesserack.fx.graph_module import GraphModule
from tesserack.nn.utils.stateless import functional_call

__all__ = ["aot_autograd", "boxed", "boxed_nop", "make_boxed_func"]

Compiler = Callable[[GraphModule, Any], Callable[..., Any]]


def make_boxed_func(f: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """The function, of one list of its arguments."""

    def boxed_call(args: list[Any]) -> Any:
        return f(*args)

    boxed_call._boxed_call = True  # type: ignore[attr-defined]
    return boxed_call


def boxed_nop(fx_g: GraphModule, example_inputs: Any) -> Callable[..., Any]:
    """The graph as it is."""
    return make_boxed_func(fx_g.forward)


def boxed(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """What a compiler has returned, called with a list."""
    if getattr(function, "_boxed_call", False):
        return lambda args: function([*args])
    return lambda args: function(*args)


def aot_autograd(
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    inference_compiler: Compiler | None = None,
    decompositions: Any = None,
    **options: Any,
) -> Callable[[GraphModule, Any], Callable[..., Any]]:
    """A backend of compilers for the graph of a call, whose arguments are parameters and buffers, too, and for that of
    its gradients, which computes the forward pass again.

    Where gradients are recorded, and the graph draws random numbers or changes what it is given, no compiler is asked,
    with a warning: what is computed again would be something else.

    >>> import tesserack as ts
    >>> seen = []
    >>> def count(gm, example_inputs):
    ...     seen.append(len(gm.graph.nodes))
    ...     return make_boxed_func(gm.forward)
    >>> x = ts.ones(2, requires_grad=True)
    >>> ts.compile(lambda x: (x * 2).sum(), backend=aot_autograd(fw_compiler=count))(x).backward()
    >>> x.grad.tolist(), len(seen)
    ([2.0, 2.0], 2)
    """

    def backend(gm: GraphModule, example_inputs: Any, **given: Any) -> Callable[..., Any]:
        held = {**dict(gm.named_parameters()), **dict(gm.named_buffers())}
        names, values = [*held], [*held.values()]

        def forward(*flat: Any) -> Any:
            return functional_call(gm, dict(zip(names, flat, strict=False)), tuple(flat[len(names) :]))

        flat = [*values, *example_inputs]
        wanted = [isinstance(x, Tensor) and x.requires_grad for x in flat]
        recorded = ts.is_grad_enabled() and any(wanted)
        if recorded and _is_impure(gm):
            warnings.warn(
                "aot_autograd: the graph draws random numbers or changes what it is given: it runs as it is",
                stacklevel=2,
            )
            return gm.forward
        with ts.no_grad():
            graph = make_fx(forward, decompositions, tracing_mode="fake")(*flat)
        compiler = fw_compiler if recorded else inference_compiler or fw_compiler
        first = boxed(compiler(graph, flat))
        if not recorded:
            return lambda *inputs: first([*values, *inputs])
        step = _step(first, forward, wanted, flat, bw_compiler or fw_compiler, decompositions)
        return lambda *inputs: step.apply(*values, *inputs)

    return backend


def _is_impure(gm: GraphModule) -> bool:
    steps = [node for node in gm.graph.nodes if node.op == "call_function"]
    return any(node.is_impure() or "native_batch_norm" in str(node.target) for node in steps)


def _step(
    first: Any, forward: Any, wanted: list[bool], flat: list[Any], compiler: Compiler, decompositions: Any
) -> type[Function]:
    """A function with gradients by a compiler's graph."""
    backwards: dict[Any, Any] = {}

    def gradients(*args: Any) -> Any:
        given, tangents = args[: len(wanted)], args[len(wanted) :]
        leaves = [x.detach().requires_grad_() if w else x for x, w in zip(given, wanted, strict=True)]
        with ts.enable_grad():
            outputs = forward(*leaves)
        pairs = [(o, t) for o, t in zip(outputs, tangents, strict=True) if o.requires_grad]
        sources = [x for x, w in zip(leaves, wanted, strict=True) if w]
        found = ts.autograd.grad([o for o, _ in pairs], sources, [t for _, t in pairs], allow_unused=True)
        return [ts.zeros_like(x) if g is None else g for x, g in zip(sources, found, strict=True)]

    class Step(Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            ctx.save_for_backward(*args)
            return tuple(first([*args]))

        @staticmethod
        def backward(ctx: Any, *tangents: Any) -> Any:
            args = [*ctx.saved_tensors, *tangents]
            key = tuple((tuple(t.shape), t.dtype) for t in tangents)
            if key not in backwards:
                graph = make_fx(gradients, decompositions, tracing_mode="fake")(*args)
                backwards[key] = boxed(compiler(graph, args))
            found = iter(backwards[key](args))
            return tuple(next(found) if w else None for w in wanted)

    return Step
