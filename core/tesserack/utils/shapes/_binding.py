"""Sizes given to names of axes, and what is said when one does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tesserack.utils.shapes._dims import Axis

__all__ = ["Binding", "ShapeError"]


class ShapeError(RuntimeError):
    """A tensor is not what its annotation says."""


class Binding:
    """The names bound within one call: their sizes, and where each came from."""

    def __init__(self, function: str, arguments: Mapping[str, Any] | None = None) -> None:
        self.function = function
        self.arguments = arguments or {}
        self.sizes: dict[str, int] = {}
        self.runs: dict[str, tuple[int, ...]] = {}  # of names that stand for several axes
        self.sources: dict[str, str] = {}

    def bind(self, name: str, size: int, source: str) -> None:
        """Give a name a size it did not have."""
        self.sizes[name], self.sources[name] = size, source

    def check(self, axes: Sequence[Axis], shape: Sequence[int], where: str) -> list[tuple[Axis, int, str]]:
        """Hold a shape against axes. Returns expressions whose names have no size yet, to be asked again.

        Raises:
            ShapeError: they differ.
        """
        many = next((k for k, axis in enumerate(axes) if axis.many), None)
        short = len(shape) < len(axes) - 1 if many is not None else len(shape) != len(axes)
        if short:
            count = len(axes) if many is None else f"at least {len(axes) - 1}"
            text = " ".join(axis.text for axis in axes)
            raise ShapeError(
                f"`{self.function}`: {where} has {count} axes ({text}), got {len(shape)} of shape {_shown(shape)}"
                f"{self.known()}"
            )
        later = []
        for k, axis in enumerate(axes):
            if axis.many:
                stop = len(shape) - (len(axes) - 1 - k)
                self._check_many(axis, tuple(shape[k:stop]), shape, where)
                continue
            place = k if many is None or k < many else len(shape) - len(axes) + k
            if not self._check_one(axis, int(shape[place]), f"axis {place} of {where} {_shown(shape)}", where):
                later.append((axis, int(shape[place]), f"axis {place} of {where} {_shown(shape)}"))
        return later

    def _check_one(self, axis: Axis, size: int, place: str, source: str) -> bool:
        if axis.kind == "any" or (axis.broadcast and size == 1):
            return True
        if axis.kind == "fixed":
            self._same(axis.text, (), axis.size, size, place)
        elif axis.kind == "expression":
            return self.settle(axis, size, place)
        elif axis.name in self.sizes:
            self._same(axis.name, (axis.name,), self.sizes[axis.name], size, place)
        else:
            self.bind(axis.name, size, source)
        return True

    def settle(self, axis: Axis, size: int, place: str) -> bool:
        """Hold a size against an expression; False if that has no value yet."""
        expression = axis.expression
        assert expression is not None
        expected = expression.value(self.sizes, self.arguments)
        if expected is not None:
            self._same(expression.text, expression.names, expected, size, place)
        return expected is not None

    def _same(self, text: str, names: Sequence[str], expected: int, got: int, place: str) -> None:
        if expected != got:
            head = f"{text} is {expected}" if not text.isdigit() else f"expected {expected}"
            raise ShapeError(f"`{self.function}`: {head}, got {got} in {place}{self.known(names)}")

    def _check_many(self, axis: Axis, run: tuple[int, ...], shape: Sequence[int], where: str) -> None:
        if axis.kind == "any":
            return
        known = self.runs.get(axis.name)
        if known is None:
            self.runs[axis.name], self.sources[axis.name] = run, where
            return
        if axis.broadcast:
            joined = _broadcast(known, run)
            if joined is not None:
                self.runs[axis.name] = joined
                return
        elif known == run:
            return
        raise ShapeError(
            f"`{self.function}`: *{axis.name} is {_shown(known)}, got {_shown(run)} in {where} {_shown(shape)}"
            f"{self.known((axis.name,))}"
        )

    def known(self, names: Sequence[str] | None = None) -> str:
        """``; heads=8 from `q```, for the names asked about or for all."""
        parts = []
        for name in [*self.sizes, *self.runs] if names is None else names:
            if name in self.sources:
                size = self.sizes[name] if name in self.sizes else _shown(self.runs[name])
                parts.append(f"{name}={size} from {self.sources[name]}")
        return "; " + ", ".join(parts) if parts else ""


def _shown(shape: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    count = max(len(a), len(b))
    a, b = (1,) * (count - len(a)) + a, (1,) * (count - len(b)) + b
    if any(x != y and 1 not in (x, y) for x, y in zip(a, b, strict=True)):
        return None
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))
