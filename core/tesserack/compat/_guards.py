"""Whether a program would rather be told that a name is missing: it asks for it within ``try`` and has another way."""

from __future__ import annotations

import ast
import functools
import linecache
import types

__all__ = ["is_guarded"]

_CAUGHT = ("ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException")


def is_guarded(frame: types.FrameType | None) -> bool:
    """Whether the line that a frame is at stands in a ``try`` that catches a missing name and goes on."""
    if frame is None:
        return False
    line = frame.f_lineno
    ranges = _guarded_lines(frame.f_code.co_filename)
    return any(first <= line <= last for first, last in ranges)


@functools.cache
def _guarded_lines(file: str) -> list[tuple[int, int]]:
    """First and last lines of the bodies of such statements in a source file."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(_goes_on(handler) for handler in node.handlers):
            found.append((node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno))
    return found


def _goes_on(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = [getattr(kind, "id", getattr(kind, "attr", "")) for kind in kinds]
    caught = handler.type is None or any(name in _CAUGHT for name in names)
    return caught and not isinstance(handler.body[-1], ast.Raise)
