"""Functions written in Python that are one operator to whoever looks on: modes, tracers, and tensors without values.

Loops that end when values have settled, and calls of libraries that are given addresses, cannot be written down call
by call: a graph would hold what the traced values led to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native, library
from tesserack._tensor.subclass import has_no_memory
from tesserack.aten.modes import stack
from tesserack.library import CustomOp, custom_op

__all__ = ["is_looked_on", "whole_operator"]

Function = Callable[..., Any]


def _has_no_values(x: Any) -> bool:
    if not isinstance(x, Tensor):
        return False
    # Of plain tensors no address is asked, which would end a compiled graph.
    return x.is_meta or (type(x) not in (ts.Tensor, ts.nn.Parameter) and has_no_memory(x))


def is_looked_on(*args: Any) -> bool:
    """Whether a call with these arguments is to be seen as one operator."""
    return bool(stack()) or _native._is_tracing() or any(_has_no_values(x) for x in args)


def _recomputed(function: Function) -> tuple[Function, Function]:
    """The gradient of the function by running it again; called with what it saves."""

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*(x for x in inputs if isinstance(x, Tensor)))
        ctx.places = [isinstance(x, Tensor) for x in inputs]
        ctx.rest = [x for x in inputs if not isinstance(x, Tensor)]

    def backward(ctx: Any, grad: Tensor) -> Any:
        tensors, rest = iter(ctx.saved_tensors), iter(ctx.rest)
        again = [next(tensors) if place else next(rest) for place in ctx.places]
        with ts.enable_grad():
            held = [x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in again]
            wanted = [x for x in held if isinstance(x, Tensor) and x.requires_grad]
            found = iter(ts.autograd.grad(function(*held), wanted, grad, allow_unused=True))
        return tuple(next(found) if isinstance(x, Tensor) and x.requires_grad else None for x in held)

    return backward, setup


def whole_operator(
    name: str, schema: str, outline: Function, gradient: tuple[Function, Function] | None = None
) -> Callable[[Function], Function]:
    """Decorator: calls, by position, are the operator ``namespace::name`` to whoever looks on.

    ``outline`` makes results of the right shape and dtype of the same arguments. ``gradient`` is ``(backward, setup)``
    as :meth:`tesserack.library.CustomOp.register_autograd` takes them; without, the function is run again and derived.
    """

    def decorate(function: Function) -> Function:
        @functools.cache
        def operator() -> CustomOp:
            made: CustomOp = custom_op(name, function, mutates_args=(), schema=schema)
            made.register_fake(outline)
            backward, setup = gradient or _recomputed(function)
            made.register_autograd(backward, setup_context=setup)
            return made

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            return operator()(*args) if is_looked_on(*args) else function(*args)

        library.make_when_asked(name, operator)
        return call

    return decorate
