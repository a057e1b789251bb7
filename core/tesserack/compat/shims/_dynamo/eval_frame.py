"""``torch._dynamo.eval_frame``: compiled modules, by which packages know them."""

from __future__ import annotations

from typing import Any

from tesserack.jit.compiler import OptimizedModule, disable, reset, set_stance

__all__ = ["OptimizedModule", "disable", "innermost_fn", "is_dynamo_supported", "reset", "set_stance"]


def innermost_fn(fn: Any, unaltered_fn_attr: str = "_torchdynamo_orig_callable") -> Any:
    """The function that was compiled, or wrapped otherwise, under a name; the function itself if none was."""
    while hasattr(fn, unaltered_fn_attr):
        fn = getattr(fn, unaltered_fn_attr)
    return fn


def is_dynamo_supported() -> bool:
    """Always True: functions run everywhere."""
    return True
