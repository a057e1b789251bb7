"""``torch._functorch.compilers``: compilers of graphs that change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack.compat.shims._functorch.aot_autograd import aot_function, aot_module, make_boxed_func
from tesserack.nn.modules.module import Module

__all__ = ["memory_efficient_fusion", "nop", "print_compile"]


def nop(fx_g: Any, _: Any = None) -> Any:
    """The graph itself."""
    return fx_g


def print_compile(fx_g: Any, _: Any = None) -> Any:
    """The graph itself, printed."""
    print(fx_g.code)
    return fx_g


def memory_efficient_fusion(fn: Any, **kwargs: Any) -> Callable[..., Any]:
    """The function or module, whose gradients are computed from its inputs alone."""
    made = aot_module if isinstance(fn, Module) else aot_function
    return made(fn, make_boxed, make_boxed, **kwargs)


def make_boxed(fx_g: Any, _: Any = None) -> Any:
    """The graph as a function of one list."""
    return make_boxed_func(fx_g)
