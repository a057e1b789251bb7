"""Sizes of tensors, and what Python makes of them, while a program is traced."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from tesserack import _native

__all__ = ["Number", "TracedFloat", "TracedInt"]


class Number:
    """A number that knows what value of the graph it is.

    No subclass of ``int`` or ``float``: their own arithmetic would not ask it (``1.0 / n``). To ``isinstance`` it is
    one nevertheless.
    """

    __slots__ = ("_number", "_value")
    __array_priority__ = 1000  # NumPy's scalars leave arithmetic to it
    _number: Any
    _value: int

    def __init__(self, number: Any, value: int) -> None:
        self._number, self._value = number, value

    def _plain(self) -> Any:
        """The number. The trace holds for runs in which it is the same; others warn."""
        _native._trace_guard("size.eq", self, self._number, True)
        return self._number

    def __hash__(self) -> int:
        return hash(self._plain())

    def __bool__(self) -> bool:
        return bool(operator.ne(self, 0))

    def __int__(self) -> int:
        return int(self._plain())

    def __float__(self) -> float:
        return float(self._plain())

    def __complex__(self) -> complex:
        return complex(self._plain())

    def __pos__(self) -> Any:
        return self

    def __neg__(self) -> Any:
        return operator.sub(0, self) if type(self) is TracedInt else operator.mul(-1.0, self)

    def __abs__(self) -> Any:
        return _made("size.max", max, self, -self)

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other)

    def __rdivmod__(self, other: Any) -> Any:
        return (other // self, other % self)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy

        return numpy.asarray(self._plain(), dtype)

    def __getattr__(self, name: str) -> Any:
        kind = type(self._number)
        if name.startswith("__") or not hasattr(kind, name):
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
        return getattr(self._plain(), name)

    def __repr__(self) -> str:
        return repr(self._number)

    def __format__(self, spec: str) -> str:
        return format(self._number, spec)

    def __pow__(self, other: Any, mod: Any = None) -> Any:
        return (
            _made("size.pow", operator.pow, self, other)
            if mod is None
            else pow(self._plain(), *map(_plain_of, (other, mod)))
        )

    def __rpow__(self, other: Any, mod: Any = None) -> Any:
        return _made("size.pow", operator.pow, other, self)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce__(self) -> Any:
        return type(self._number), (self._plain(),)


def _plain_of(x: Any) -> Any:
    return x._plain() if isinstance(x, Number) else x


def _number_of(x: Any) -> Any:
    """The Python number that it stands for; None for what is no real one."""
    if isinstance(x, Number):
        return x._number
    return (int(x) if isinstance(x, int) else x) if isinstance(x, (int, float)) else None


def _leaves(x: Any) -> bool:
    """Whether its arithmetic with a traced number takes that as it was: complex numbers, and NumPy's."""
    return isinstance(x, complex) or (hasattr(x, "__array__") and not isinstance(x, (Number, _native.Tensor)))


def _fits(result: Any) -> bool:
    return isinstance(result, float) or (isinstance(result, int) and -(1 << 63) <= result < 1 << 63)


def _made(name: str, plain: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """What Python makes of the two, written down where both are real numbers; errors are Python's."""
    x, y = _number_of(a), _number_of(b)
    if x is None or y is None:
        return plain(_plain_of(a), _plain_of(b)) if _leaves(a) or _leaves(b) else NotImplemented
    result = plain(x, y)
    if not _fits(result):
        return plain(_plain_of(a), _plain_of(b))
    made = _native._trace_number(name, a if isinstance(a, Number) else x, b if isinstance(b, Number) else y)
    return result if made is None else made


def _arithmetic(name: str, plain: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """The method and its reflected form."""
    return lambda self, other: _made(name, plain, self, other), lambda self, other: _made(name, plain, other, self)


def _comparison(name: str, plain: Callable[[Any, Any], Any]) -> Any:
    def compare(self: Number, other: Any) -> Any:
        number = _number_of(other)
        if number is None:
            return plain(self._plain(), other) if _leaves(other) else NotImplemented
        answer = plain(self._number, number)
        _native._trace_guard(name, self, other if isinstance(other, Number) else number, answer)
        return answer

    return compare


def _leaving(name: str) -> Any:
    """A method whose result does not follow the size: the trace holds for sizes that are equal."""
    return lambda self, *args: getattr(self._plain(), name)(*map(_plain_of, args))


def _rounded(name: str, plain: Callable[[float], int]) -> Any:
    def method(self: Number) -> Any:
        if type(self) is TracedInt:
            return self
        return _made(name, lambda x, _: plain(x), self, 0)

    return method


_OPERATORS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "add": ("size.add", operator.add),
    "sub": ("size.sub", operator.sub),
    "mul": ("size.mul", operator.mul),
    "floordiv": ("size.div", operator.floordiv),
    "mod": ("size.mod", operator.mod),
    "truediv": ("size.truediv", operator.truediv),
}
for _method, _entry in _OPERATORS.items():
    _forward, _reflected = _arithmetic(*_entry)
    setattr(Number, f"__{_method}__", _forward)
    setattr(Number, f"__r{_method}__", _reflected)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Number, f"__{_name}__", _comparison(f"size.{_name}", getattr(operator, _name)))
for _name in ("floor", "ceil", "trunc"):
    setattr(Number, f"__{_name}__", _rounded(f"size.{_name}", getattr(math, _name)))


class TracedInt(Number):
    """``x.shape[i]`` within a program that is traced, and whole numbers that follow from it.

    What ``+ - * / // % **``, the sign, shifts and rounding make of it is a traced number, too, and a later run
    computes it anew. Comparing, hashing or converting it gives what plain ints give, and is written down as a guard,
    with the line: a run in which it comes out differently warns.
    """

    __slots__ = ()
    __class__ = property(lambda self: int)

    def __index__(self) -> int:
        return int(self._plain())

    def __round__(self, digits: Any = None) -> Any:
        return self if digits is None else round(self._plain(), digits)

    def __lshift__(self, other: Any) -> Any:
        return self * 2**other if type(other) is int and 0 <= other < 63 else self._plain() << other

    def __rshift__(self, other: Any) -> Any:
        return self // 2**other if type(other) is int and 0 <= other < 63 else self._plain() >> other

    __rlshift__, __rrshift__ = _leaving("__rlshift__"), _leaving("__rrshift__")
    __and__, __or__, __xor__ = _leaving("__and__"), _leaving("__or__"), _leaving("__xor__")
    __rand__, __ror__, __rxor__ = _leaving("__rand__"), _leaving("__ror__"), _leaving("__rxor__")
    __invert__ = _leaving("__invert__")


class TracedFloat(Number):
    """A fraction that follows from sizes: ``x.shape[i] / 2``, ``n ** 0.5``; ``math.floor`` of it is whole again."""

    __slots__ = ()
    __class__ = property(lambda self: float)

    def __round__(self, digits: Any = None) -> Any:
        if digits is not None:
            return round(self._plain(), digits)
        return _made("size.round", lambda x, _: round(x), self, 0)


_native._set_traced_numbers(TracedInt, TracedFloat)
