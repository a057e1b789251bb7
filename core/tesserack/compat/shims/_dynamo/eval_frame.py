"""``torch._dynamo.eval_frame``: compiled modules, by which packages know them."""

from __future__ import annotations

from typing import Any

from tesserack.jit.compiler import OptimizedModule, disable, reset, set_stance

__all__ = ["OptimizedModule", "disable", "innermost_fn", "reset", "set_stance"]


def innermost_fn(fn: Any, unaltered_fn_attr: str = "_torchdynamo_orig_callable") -> Any:
    """The function that was compiled, or wrapped otherwise, under a name; the function itself if none was."""
    while hasattr(fn, unaltered_fn_attr):
        fn = getattr(fn, unaltered_fn_attr)
    return fn
