"""``assert`` as a function, which traces note instead of deciding it."""

from __future__ import annotations

import sys
from typing import Any

from tesserack._tensor.overrides import handle_torch_function, has_torch_function_unary

__all__: list[str] = []


def _assert(condition: Any, message: str = "") -> None:
    """``AssertionError`` with the message unless the condition holds; a condition that overrides functions is asked.

    In what ``jit.script`` was given: ``jit.Error``, as PyTorch's interpreter says it.
    """
    if has_torch_function_unary(condition):
        handle_torch_function(_assert, (condition,), condition, message)
        return
    if not condition:
        script = sys.modules.get("tesserack.jit._script")
        raise (script.failed_assertion(message) if script else None) or AssertionError(message)
