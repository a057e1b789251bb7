"""Operators over lists of tensors: ``_foreach_add_(tensors, others)`` and its like, each a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack._native import Tensor
from tesserack.ops.registry import operators

__all__ = ["FUNCTIONS"]

_UNARY = (
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma"),
    *("log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt"),
    *("tan", "tanh", "trunc", "zero"),
)
_BINARY = ("add", "sub", "mul", "div", "pow", "clamp_min", "clamp_max", "maximum", "minimum", "copy")
_TERNARY = ("addcdiv", "addcmul", "lerp")
# Where maximum and its like are given a number.
_NUMBER = {"maximum": "clamp_min", "minimum": "clamp_max"}


def _check_tensors(name: str, tensors: Any) -> None:
    if len(tensors) == 0:
        raise RuntimeError(f"{name}: expected a list of at least one tensor, got an empty one")


def _at(value: Any, k: int) -> Any:
    """The k-th of a list; a number, or a tensor of one, is for all."""
    return value[k] if isinstance(value, (list, tuple)) else value


def _call(name: str, suffix: str, tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if name in _NUMBER and args and not isinstance(args[0], Tensor):
        name = _NUMBER[name]
    if name in ("addcdiv", "addcmul"):
        if len(args) == 3:
            *args_list, value = args
            args, kwargs = tuple(args_list), {"value": value}
        elif "scalars" in kwargs:
            kwargs = {"value" if key == "scalars" else key: value for key, value in kwargs.items()}
    return operators()[name + suffix](tensor, *args, **kwargs)


def _make(name: str, suffix: str) -> Callable[..., Any]:
    def foreach(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name == "pow" and not suffix and not isinstance(self, (list, tuple)):  # one base, several exponents
            exponents = args[0] if args else kwargs["exponent"]
            _check_tensors(foreach.__name__, exponents)
            return tuple(operators()["pow"](self, each) for each in exponents)
        _check_tensors(foreach.__name__, self)
        if name in ("addcdiv", "addcmul"):  # whose numbers may be the elements of one tensor
            args = (*args[:2], *(a.tolist() if isinstance(a, Tensor) and a.ndim == 1 else a for a in args[2:]))
        lists = [a for a in (*args, *kwargs.values()) if isinstance(a, (list, tuple))]
        if any(len(other) != len(self) for other in lists):
            lengths = [len(self), *map(len, lists)]
            raise RuntimeError(f"_foreach_{name}{suffix}: expected lists of one length, got lengths {lengths}")
        results = tuple(
            _call(name, suffix, t, tuple(_at(a, k) for a in args), {key: _at(v, k) for key, v in kwargs.items()})
            for k, t in enumerate(self)
        )
        return self if suffix else results

    foreach.__name__ = foreach.__qualname__ = f"_foreach_{name}{suffix}"
    foreach.__doc__ = f"``{name}{suffix}`` of each tensor of a list; arguments are for all, or lists of as many."
    return foreach


def _foreach_norm(self: Any, ord: float = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The vector norm of each tensor."""
    _check_tensors("_foreach_norm", self)
    return tuple(operators()["linalg_vector_norm"](t, ord, dtype=dtype) for t in self)


def _foreach_max(self: Any) -> tuple[Tensor, ...]:
    """The largest element of each tensor."""
    _check_tensors("_foreach_max", self)
    return tuple(operators()["amax"](t) for t in self)


FUNCTIONS: dict[str, Callable[..., Any]] = {"_foreach_norm": _foreach_norm, "_foreach_max": _foreach_max}
for _name in (*_UNARY, *_BINARY, *_TERNARY):
    for _suffix in ("", "_"):
        if _name in ("zero", "copy") and not _suffix:
            continue
        FUNCTIONS[f"_foreach_{_name}{_suffix}"] = _make(_name, _suffix)
