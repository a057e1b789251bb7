"""Arguments of scripted functions and modules against what these declare, as PyTorch checks them before it runs any."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from tesserack import Tensor, device, dtype
from tesserack.nn.parameter import Parameter

__all__ = ["Declared"]

_NUMBERS = (int, float, complex)
_CONTAINERS = (list, tuple, dict, set, frozenset)
_PLAIN = (str, bytes, *_NUMBERS, *_CONTAINERS)
_NONE = type(None)
# What each of these surely is not given as; of what is not listed nothing is known, such as numbers of NumPy.
_NEVER: dict[Any, tuple[type, ...]] = {
    Tensor: _PLAIN,
    int: (str, bytes, float, complex, _NONE, *_CONTAINERS),
    float: (str, bytes, complex, _NONE, *_CONTAINERS),
    bool: (str, bytes, *_CONTAINERS),
    str: (bytes, Tensor, _NONE, *_NUMBERS, *_CONTAINERS),
    device: (bytes, Tensor, _NONE, *_NUMBERS, *_CONTAINERS),
    dtype: (str, bytes, float, complex, Tensor, _NONE, *_CONTAINERS),
}
# What each of these surely may be given as, looked at first.
_ALWAYS: dict[Any, frozenset[type]] = {
    Tensor: frozenset((Tensor, Parameter)),
    int: frozenset((int, bool)),
    float: frozenset((float, int, bool)),
    bool: frozenset((bool, int)),
    str: frozenset((str,)),
}
_UNIONS = (typing.Union, types.UnionType)


def _fits(kind: Any, value: Any) -> bool:
    """Whether a value may be given where this is declared; True for what is not known."""
    if kind in _NEVER:
        array = kind is Tensor and type(value).__module__ == "numpy"
        return not array and not isinstance(value, _NEVER[kind])
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in _UNIONS:
        return any(value is None if part is _NONE else _fits(part, value) for part in parts)
    if origin is list:
        text = isinstance(value, str) and parts != (str,)  # a text is a list of texts
        if text or value is None or isinstance(value, (Tensor, *_NUMBERS)):
            return False
        return not isinstance(value, (list, tuple)) or all(_fits(parts[0], each) for each in value)
    if origin is tuple:
        if not isinstance(value, (list, tuple)) or Ellipsis in parts:
            return value is not None and not isinstance(value, (str, Tensor, *_NUMBERS))
        return len(value) == len(parts) and all(map(_fits, parts, value))
    if origin is dict and isinstance(value, dict):
        return all(_fits(parts[0], key) and _fits(parts[1], each) for key, each in value.items())
    return True


def _shown(kind: Any) -> str:
    parts = typing.get_args(kind)
    if not parts:
        return str(getattr(kind, "__name__", kind))
    origin, known = typing.get_origin(kind), [part for part in parts if part is not _NONE]
    either = "Union" if len(known) == len(parts) else "Optional"
    name = either if origin in _UNIONS else str(getattr(origin, "__name__", origin)).capitalize()
    return f"{name}[{', '.join(map(_shown, known))}]"


def _commented(function: Any) -> bool:
    """Whether the types are told in a comment, which Python does not read."""
    try:
        return "# type:" in inspect.getsource(function)
    except (OSError, TypeError):
        return True


class Declared:
    """The parameters of a function, but for the first ``skipped``, and what may be given for them."""

    def __init__(self, function: Callable[..., Any], skipped: int = 0) -> None:
        self.name = getattr(function, "__name__", "forward")
        self._function = function
        try:
            found = [*inspect.signature(function).parameters.values()][skipped:]
            hints = typing.get_type_hints(function)
        except (NameError, TypeError, ValueError, AttributeError):
            found, hints = [], {}
            self.known = False
        else:
            self.known = all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in found)
        self._places = [p.name for p in found if p.kind is p.POSITIONAL_OR_KEYWORD]
        self._needed = [p.name for p in found if p.default is p.empty]
        self._kinds = {p.name: hints.get(p.name, Tensor if p.default is p.empty else Any) for p in found}
        self._inferred = {name for name in self._kinds if name not in hints}
        self._quick = [_ALWAYS.get(self._kinds[name], frozenset()) for name in self._places]
        self._good: set[tuple[type, ...]] = set()
        by_name = any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in found)
        self._least = len(found) + 1 if by_name else sum(name in self._places for name in self._needed)

    def refusal(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Why these are no arguments of it; empty where nothing speaks against them."""
        if not self.known or (not kwargs and self._surely(args)):
            return ""
        if len(args) > len(self._places):
            return (
                f"{self.name}() expected at most {len(self._places)} argument(s) but received "
                f"{len(args) + len(kwargs)} argument(s)."
            )
        given = dict(zip(self._places, args, strict=False))
        for name in kwargs:
            if name not in self._kinds:
                return f"Unknown keyword argument {name!r} for operator {self.name!r}."
            if name in given:
                return f"Argument {name!r} specified both as positional and keyword argument."
        given.update(kwargs)
        for name in self._needed:
            if name not in given:
                return f"{self.name}() is missing value for argument {name!r}."
        return next((told for name, value in given.items() if (told := self._wrong(name, value))), "")

    def _surely(self, args: tuple[Any, ...]) -> bool:
        """Whether the types alone say that these may be given; those that do are known again."""
        given = tuple(map(type, args))
        if given in self._good:
            return True
        counted = self._least <= len(given) <= len(self._quick)
        if counted and all(kind in kinds for kind, kinds in zip(given, self._quick, strict=False)):
            self._good.add(given)
            return True
        return False

    def _wrong(self, name: str, value: Any) -> str:
        kind, inferred = self._kinds[name], name in self._inferred
        if _fits(kind, value) or (inferred and _commented(self._function)):
            return ""
        expected = _shown(kind) + " (inferred)" * inferred
        return (
            f"{self.name}() Expected a value of type {expected!r} for argument {name!r} but instead found type "
            f"{type(value).__name__!r}."
        )
