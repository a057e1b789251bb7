"""Inputs of a trial as text: ``"batch 3 224 224"``, ``"int64[batch time]"``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tesserack import _native, empty
from tesserack._native import dtype
from tesserack.utils.shapes._dims import Axis, parse_shape

__all__ = ["InputText"]

_FORM = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)\s*=\s*)?(?:(?P<dtype>[A-Za-z]\w*)\s*\[(?P<in>[^\[\]]*)\]|(?P<out>[^\[\]]*))\s*"
)


@dataclass(frozen=True)
class InputText:
    """One input: its axes and dtype; with ``name=`` before them it is passed by that name."""

    text: str
    axes: tuple[Axis, ...]
    dtype: Any
    name: str | None = None

    @classmethod
    def parse(cls, text: str) -> InputText:
        """Read a text.

        Raises:
            ValueError: it is no input; the message says why.

        >>> InputText.parse("int64[batch time]").names()
        ['batch', 'time']
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError(f"input {text!r}: expected axes such as 'batch 3 224 224' or 'int64[batch time]'")
        kind = getattr(_native, match["dtype"] or "float32", None)
        if not isinstance(kind, dtype):
            raise ValueError(f"input {text!r}: {match['dtype']!r} is no dtype")
        axes = parse_shape(match["out"] if match["in"] is None else match["in"])
        for axis in axes:
            if axis.kind == "any" or axis.many or axis.broadcast or (axis.expression and axis.expression.holes):
                raise ValueError(f"input {text!r}: {axis.text!r} has no size; write a name or a number")
        return cls(text, axes, kind, match["name"])

    def names(self) -> list[str]:
        """Names of axes in it."""
        found: dict[str, None] = {}
        for axis in self.axes:
            found.update(dict.fromkeys(axis.expression.names if axis.expression else [axis.name] if axis.name else []))
        return [*found]

    def tensor(self, sizes: Mapping[str, int]) -> Any:
        """A tensor without data of these sizes.

        Raises:
            ValueError: an expression gives a negative size.
        """
        shape = [self._size(axis, sizes) for axis in self.axes]
        if min(shape, default=0) < 0:
            raise ValueError(f"input {self.text!r}: the size of an axis is negative: {shape}")
        return empty(shape, dtype=self.dtype, device="meta")

    def _size(self, axis: Axis, sizes: Mapping[str, int]) -> int:
        if axis.expression is not None:
            return int(axis.expression.value(sizes, {}) or 0)
        return sizes[axis.name] if axis.kind == "name" else axis.size
