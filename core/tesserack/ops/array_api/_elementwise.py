"""The standard's functions of each element: those of the package, which take a number beside an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor

_SAME_NAMES_UNARY = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "imag", "isfinite", "isinf"),
    *("isnan", "log", "log1p", "log2", "log10", "logical_not", "real", "reciprocal", "signbit", "sin", "sinh", "sqrt"),
    *("square", "tan", "tanh", "conj", "negative", "positive", "abs"),
)
_SAME_NAMES_BINARY = (
    *("atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "copysign"),
    *("floor_divide", "hypot", "logaddexp", "logical_and", "logical_or", "logical_xor", "maximum", "minimum"),
    "multiply",
    *("nextafter", "not_equal", "pow", "remainder", "subtract", "add", "divide", "greater", "greater_equal"),
    *("less", "less_equal"),
)


def _unary(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(x: Tensor, /) -> Tensor:
        return function(x)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``{name}`` of each element, see the function of the package."
    return call


def _numbers(op: str, x1: Any, x2: Any) -> tuple[Any, Any]:
    """A number beside a tensor as a tensor of its dtype, where its kind allows. Dtypes alone decide what two tensors
    are promoted to, whether they have dims or not."""
    if isinstance(x1, Tensor) and isinstance(x2, Tensor):
        if x1.dtype is x2.dtype or (x1.dim() == 0) == (x2.dim() == 0):
            return x1, x2
        kind = ts.promote_types(x1.dtype, x2.dtype)
        return x1.to(kind), x2.to(kind)
    if isinstance(x1, Tensor):
        return x1, _like(op, x1, x2)
    if isinstance(x2, Tensor):
        return _like(op, x2, x1), x2
    raise TypeError(f"{op}: expected an array, got {type(x1).__name__} and {type(x2).__name__}")


def _like(op: str, x: Tensor, value: Any) -> Tensor:
    kind = x.dtype
    fits = (
        isinstance(value, bool)
        or (isinstance(value, int) and kind is not ts.bool)
        or (isinstance(value, float) and (kind.is_floating_point or kind.is_complex))
        or (isinstance(value, complex) and (kind.is_floating_point or kind.is_complex))
    )
    if not fits or (isinstance(value, bool) and kind is not ts.bool):
        raise TypeError(f"{op}: expected a number of the kind of {kind}, got {value!r}")
    return ts.tensor(value, dtype=kind.to_complex() if isinstance(value, complex) else kind, device=x.device)


def _binary(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(x1: Tensor | complex, x2: Tensor | complex, /) -> Tensor:
        return function(*_numbers(name, x1, x2))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``{name}`` of each two elements, see the function of the package."
    return call


def _whole(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Integers are whole already."""
    return lambda x: function(x) if x.is_floating_point() or x.is_complex() else x.clone()


def _sign(x: Tensor) -> Tensor:
    return ts.sgn(x) if x.is_complex() else ts.where(x.isnan(), x, ts.sign(x)) if x.is_floating_point() else ts.sign(x)


def _round(x: Tensor) -> Tensor:
    if x.is_complex():
        return ts.complex(ts.round(ts.real(x)), ts.round(ts.imag(x)))
    return _whole(ts.round)(x)


def _equal(x1: Tensor, x2: Tensor) -> Tensor:
    return ts.eq(x1, x2)


def _remainder(x1: Tensor, x2: Tensor) -> Tensor:
    """A remainder of zero has the sign of the divisor."""
    found = ts.remainder(x1, x2)
    return ts.where(found == 0, ts.copysign(found, x2), found) if found.is_floating_point() else found


def _floor_divide(x1: Tensor, x2: Tensor) -> Tensor:
    """Infinity by a finite number is infinite."""
    found = ts.floor_divide(x1, x2)
    if not found.is_floating_point():
        return found
    return ts.where(x1.isinf() & x2.isfinite(), ts.copysign(x1, 1) * ts.copysign(ts.ones_like(x2), x1)
                    * ts.copysign(ts.ones_like(x2), x2), found)  # fmt: skip


def _real(x: Tensor) -> Tensor:
    return ts.real(x) if x.is_complex() else x


def _squared(x: Tensor) -> Tensor:
    return x * x


def _conj(x: Tensor) -> Tensor:
    return ts.conj(x) if x.is_complex() else x


FUNCTIONS: dict[str, Callable[..., Any]] = {n: _unary(n, getattr(ts, n)) for n in _SAME_NAMES_UNARY}
FUNCTIONS |= {n: _binary(n, getattr(ts, n)) for n in _SAME_NAMES_BINARY}
FUNCTIONS |= {n: _unary(n, _whole(getattr(ts, n))) for n in ("ceil", "floor", "trunc")}
FUNCTIONS |= {
    "round": _unary("round", _round),
    "sign": _unary("sign", _sign),
    "real": _unary("real", _real),
    "conj": _unary("conj", _conj),
    "square": _unary("square", _squared),
    "bitwise_invert": _unary("bitwise_invert", ts.bitwise_not),
    "equal": _binary("equal", _equal),
    "remainder": _binary("remainder", _remainder),
    "floor_divide": _binary("floor_divide", _floor_divide),
}


def clip(x: Tensor, /, min: Tensor | float | None = None, max: Tensor | float | None = None) -> Tensor:
    """``x`` between two bounds, numbers or arrays that broadcast to it, in its dtype.

    >>> import tesserack as ts
    >>> ts.array_api.clip(ts.tensor([1, 5, 9]), 2, 6).tolist()
    [2, 5, 6]
    """
    result = x.clone()
    if min is not None:
        low = min.to(x.dtype) if isinstance(min, Tensor) else _like("clip", x, min)
        result = ts.maximum(result, low)
    if max is not None:
        high = max.to(x.dtype) if isinstance(max, Tensor) else _like("clip", x, max)
        result = ts.minimum(result, high)
    return result


def where(condition: Tensor, x1: Tensor | complex, x2: Tensor | complex, /) -> Tensor:
    """``x1`` where ``condition`` holds, else ``x2``."""
    a, b = _numbers("where", x1, x2)
    return ts.where(condition, a, b)


FUNCTIONS |= {"clip": clip, "where": where}
