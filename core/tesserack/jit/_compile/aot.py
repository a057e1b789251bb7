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
from tesserack.jit._compile.partition import parted
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
    its gradients. The first gives the second what it needs, so that nothing is computed twice, and random numbers are
    drawn once.

    Where gradients are recorded, and the graph writes to what it is given, no compiler is asked, with a warning. Of
    gradients that gradients are taken of (``create_graph=True``) plain Python computes the first.

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
        if recorded and _writes(gm):
            warnings.warn("aot_autograd: the graph writes to what it is given: it runs as it is", stacklevel=2)
            return gm.forward
        if recorded:
            step = _step(forward, wanted, flat, (fw_compiler, bw_compiler or fw_compiler), decompositions)
            return lambda *inputs: step.apply(*values, *inputs)
        with ts.no_grad():
            graph = make_fx(forward, decompositions, tracing_mode="fake")(*flat)
        first = boxed((inference_compiler or fw_compiler)(graph, flat))
        return lambda *inputs: first([*values, *inputs])

    return backend


def _writes(gm: GraphModule) -> bool:
    steps = [node for node in gm.graph.nodes if node.op == "call_function"]
    return any(
        getattr(getattr(node.target, "_schema", None), "is_mutable", False) or "native_batch_norm" in str(node.target)
        for node in steps
    )


class _Joint:
    """A forward and a backward pass as one function, for its graph: of inputs, and of gradients of its results."""

    def __init__(self, forward: Any, wanted: list[bool]) -> None:
        self.forward, self.wanted = forward, wanted
        self.outputs: list[Any] = []  # of the last run
        self.found: list[bool] = []  # which gradients there are

    def run(self, *flat: Any) -> Any:
        """The results."""
        leaves = [x.detach().requires_grad_() if w else x for x, w in zip(flat, self.wanted, strict=True)]
        with ts.enable_grad():
            self.outputs = [*self.forward(*leaves)]
        self.sources = [x for x, w in zip(leaves, self.wanted, strict=True) if w]
        return [o.detach() for o in self.outputs]

    def gradients(self, *args: Any) -> Any:
        """Those of inputs that want them."""
        flat, tangents = args[: len(self.wanted)], args[len(self.wanted) :]
        results = self.run(*flat)
        outputs = [o for o in self.outputs if o.requires_grad]
        create = ts.is_grad_enabled()
        gradients = ts.autograd.grad(outputs, self.sources, tangents, allow_unused=True, create_graph=create)
        self.found = [g is not None for g in gradients]
        return [*results, *(g for g in gradients if g is not None)]


def _step(
    forward: Any, wanted: list[bool], flat: list[Any], compilers: tuple[Compiler, Compiler], decompositions: Any
) -> type[Function]:
    """A function with gradients, both by compilers' graphs."""
    joint = _Joint(forward, wanted)
    with ts.no_grad():
        make_fx(joint.run, tracing_mode="fake")(*flat)
        flows = [bool(o.requires_grad) for o in joint.outputs]
        like = [
            ts.empty_strided(tuple(o.shape), o.stride(), dtype=o.dtype, device=o.device)
            for o, flow in zip(joint.outputs, flows, strict=True)
            if flow
        ]
        graph = make_fx(joint.gradients, decompositions, tracing_mode="fake")(*flat, *like)
    first, second, places = parted(graph, len(flat), len(flows))
    found = joint.found
    strides = [x.stride() for x in like]
    call = boxed(compilers[0](first, flat))
    backward_call: list[Any] = []

    class Step(Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            outputs = [*call([*args])]
            results, saved = outputs[: len(flows)], outputs[len(flows) :]
            ctx.save_for_backward(*args, *(x for x, place in zip(saved, places, strict=True) if place is None))
            ctx.mark_non_differentiable(*(x for x, flow in zip(results, flows, strict=True) if not flow))
            return tuple(results)

        @staticmethod
        def backward(ctx: Any, *tangents: Any) -> Any:
            args, made = ctx.saved_tensors[: len(wanted)], iter(ctx.saved_tensors[len(wanted) :])
            tangents = tuple(t for t, flow in zip(tangents, flows, strict=True) if flow)
            if ts.is_grad_enabled():  # of these, too, gradients are taken
                return _spread(_again(forward, wanted, args, tangents), wanted)
            laid = [_laid_out(t, stride) for t, stride in zip(tangents, strides, strict=True)]
            given = [*(next(made) if place is None else args[place] for place in places), *laid]
            if not backward_call:
                backward_call.append(boxed(compilers[1](second, given)))
            gradients = iter(backward_call[0](given))
            return _spread([next(gradients) if there else None for there in found], wanted)

    return Step


def _again(forward: Any, wanted: list[bool], args: Any, tangents: Any) -> list[Any]:
    """Gradients that gradients flow through: of a forward pass that is run for them."""
    leaves = [x.view_as(x) if w else x for x, w in zip(args, wanted, strict=True)]
    outputs = [o for o in forward(*leaves) if o.requires_grad]
    sources = [x for x, w in zip(leaves, wanted, strict=True) if w]
    return [*ts.autograd.grad(outputs, sources, tangents, allow_unused=True, create_graph=True)]


def _spread(gradients: list[Any], wanted: list[bool]) -> tuple[Any, ...]:
    found = iter(gradients)
    return tuple(next(found) if w else None for w in wanted)


def _laid_out(x: Tensor, stride: Any) -> Tensor:
    """The values in memory as a graph was made for."""
    if x.stride() == stride:
        return x
    return ts.empty_strided(tuple(x.shape), stride, dtype=x.dtype, device=x.device).copy_(x)
