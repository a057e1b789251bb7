"""``torch._inductor.compile_fx``: the compiler that backends of programs end with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["compile_fx", "compile_fx_inner"]


def compile_fx(model_: Any, example_inputs_: Any, *args: Any, **options: Any) -> Any:
    """The graph as it is: it runs by plans, whoever made it. ``inner_compile=`` is asked in its place."""
    inner = options.get("inner_compile")
    return inner(model_, example_inputs_) if inner is not None else model_.forward


def compile_fx_inner(gm: Any, example_inputs: Any, **options: Any) -> Callable[..., Any]:
    """The graph as it is, of one list as of arguments."""

    def call(*given: Any) -> Any:
        return gm.forward(*(given[0] if len(given) == 1 and isinstance(given[0], (list, tuple)) else given))

    return call
