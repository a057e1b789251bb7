"""Sizes of tensors while a program is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack import _native

__all__ = ["TracedInt"]


def _arithmetic(name: str, plain: Callable[[int, int], Any]) -> tuple[Any, Any]:
    """The method and its reflected form: written down where both are whole numbers."""

    def forward(self: TracedInt, other: Any) -> Any:
        if not isinstance(other, int) or isinstance(other, bool):
            return plain(self._plain(), other) if isinstance(other, bool) else NotImplemented
        if plain is not int.__add__ and other == 0 and name in ("size.div", "size.mod"):
            return plain(int(self), other)  # raises as Python does
        made = _native._trace_number(name, self, other)
        return plain(self, other) if made is None else made

    def reflected(self: TracedInt, other: Any) -> Any:
        if not isinstance(other, int) or isinstance(other, bool):
            return NotImplemented
        made = _native._trace_number(name, other, self)
        return plain(other, self) if made is None else made

    return forward, reflected


def _comparison(name: str, plain: Callable[[int, int], Any]) -> Any:
    def compare(self: TracedInt, other: Any) -> Any:
        answer = plain(self, other)
        if answer is not NotImplemented and isinstance(other, int):
            _native._trace_guard(name, self, int.__add__(0, other) if type(other) is bool else other, answer)
        return answer

    return compare


def _leaving(name: str) -> Any:
    """A method whose result does not follow the size: the trace holds for sizes that are equal."""
    plain = getattr(int, name)

    def method(self: TracedInt, *args: Any) -> Any:
        return plain(self._plain(), *args)

    return method


class TracedInt(int):
    """``x.shape[i]`` within a program that is traced: an int that knows what value of the graph it is.

    What ``+ - * // %`` and the sign make of it is one, too, and a later run computes it anew. Comparing, hashing or
    converting it gives what plain ints give, and is written down as a guard, with the line: a run in which it comes
    out differently warns.
    """

    _value: int

    def _plain(self) -> int:
        number = int.__int__(self)
        _native._trace_guard("size.eq", self, number, True)
        return number

    __add__, __radd__ = _arithmetic("size.add", int.__add__)
    __sub__, __rsub__ = _arithmetic("size.sub", int.__sub__)
    __mul__, __rmul__ = _arithmetic("size.mul", int.__mul__)
    __floordiv__, __rfloordiv__ = _arithmetic("size.div", int.__floordiv__)
    __mod__, __rmod__ = _arithmetic("size.mod", int.__mod__)

    def __neg__(self) -> int:
        made = _native._trace_number("size.sub", 0, self)
        return int.__neg__(self) if made is None else made

    def __pos__(self) -> int:
        return self

    __eq__ = _comparison("size.eq", int.__eq__)
    __ne__ = _comparison("size.ne", int.__ne__)
    __lt__ = _comparison("size.lt", int.__lt__)
    __le__ = _comparison("size.le", int.__le__)
    __gt__ = _comparison("size.gt", int.__gt__)
    __ge__ = _comparison("size.ge", int.__ge__)

    def __hash__(self) -> int:
        return hash(self._plain())

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __int__(self) -> int:
        return self._plain()

    def __index__(self) -> int:
        return self._plain()

    def __float__(self) -> float:
        return float(self._plain())

    def __reduce__(self) -> Any:
        return int, (self._plain(),)

    __truediv__, __rtruediv__ = _leaving("__truediv__"), _leaving("__rtruediv__")
    __pow__, __rpow__ = _leaving("__pow__"), _leaving("__rpow__")
    __divmod__, __rdivmod__ = _leaving("__divmod__"), _leaving("__rdivmod__")
    __lshift__, __rshift__ = _leaving("__lshift__"), _leaving("__rshift__")
    __and__, __or__, __xor__ = _leaving("__and__"), _leaving("__or__"), _leaving("__xor__")
    __abs__, __invert__ = _leaving("__abs__"), _leaving("__invert__")
    __round__, __trunc__ = _leaving("__round__"), _leaving("__trunc__")
    __floor__, __ceil__ = _leaving("__floor__"), _leaving("__ceil__")


_native._set_traced_int(TracedInt)
