"""Types that TorchScript gives to values."""

from __future__ import annotations

import typing
from typing import Any

import tesserack as ts

__all__ = ["InferredType", "try_infer"]

_NUMBERS = {bool: "bool", int: "int", float: "float", complex: "complex", str: "str", type(None): "NoneType"}


class _Type:
    """A type as an annotation says it."""

    def __init__(self, annotation: Any, text: str) -> None:
        self.annotation, self.annotation_str = annotation, text

    def __str__(self) -> str:
        return self.annotation_str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Type) and self.annotation_str == other.annotation_str

    def __hash__(self) -> int:
        return hash(self.annotation_str)


class InferredType:
    """A type, or why there is none."""

    def __init__(self, found: _Type | None, why: str = "") -> None:
        self._found, self._why = found, why

    def success(self) -> bool:
        """Whether there is a type."""
        return self._found is not None

    def type(self) -> _Type:
        """The type. ``RuntimeError`` where there is none."""
        if self._found is None:
            raise RuntimeError(self._why)
        return self._found

    def reason(self) -> str:
        """Why there is none."""
        return self._why


def _joined(values: list[Any], what: str) -> _Type:
    """The one type of all; ``TypeError`` for several, or none."""
    kinds = {t.annotation_str: t for t in map(_of, values)}
    if len(kinds) != 1:
        raise TypeError(f"{what} of {'several types' if kinds else 'nothing'}, {', '.join(sorted(kinds))}")
    return next(iter(kinds.values()))


def _of(value: Any) -> _Type:
    if isinstance(value, ts.Tensor):
        return _Type(ts.Tensor, "Tensor")
    if type(value) in _NUMBERS:
        return _Type(type(value), _NUMBERS[type(value)])
    if isinstance(value, (ts.dtype, ts.layout)):
        return _Type(int, "int")
    if isinstance(value, ts.device):
        return _Type(ts.device, "Device")
    if isinstance(value, dict):
        key, item = _joined([*value], "a dict with keys"), _joined([*value.values()], "a dict with values")
        return _Type(typing.Dict[key.annotation, item.annotation], f"Dict[{key}, {item}]")  # type: ignore[name-defined]  # noqa: UP006
    if isinstance(value, tuple):
        items = [*map(_of, value)]
        inside = tuple(item.annotation for item in items)
        return _Type(typing.Tuple[inside], f"Tuple[{', '.join(map(str, items)) or '()'}]")  # noqa: UP006
    if isinstance(value, list):
        item = _joined(value, "a list")
        return _Type(typing.List[item.annotation], f"List[{item}]")  # type: ignore[name-defined]  # noqa: UP006
    raise TypeError(f"a value of {type(value).__name__}")


def try_infer(value: Any) -> InferredType:
    """The type of a value: of lists and dicts with what they hold, which is of one type."""
    try:
        return InferredType(_of(value))
    except TypeError as error:
        return InferredType(None, f"Cannot infer a type of {error}")
