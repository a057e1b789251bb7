"""Groups of dtypes, as tuples."""

from __future__ import annotations

from functools import partial
from typing import Any

import tesserack as ts

__all__ = [
    "all_types",
    "all_types_and",
    "all_types_and_complex",
    "all_types_and_complex_and",
    "all_types_and_half",
    "complex_types",
    "complex_types_and",
    "double_types",
    "floating_and_complex_types",
    "floating_and_complex_types_and",
    "floating_types",
    "floating_types_and",
    "floating_types_and_half",
    "get_all_complex_dtypes",
    "get_all_dtypes",
    "get_all_fp_dtypes",
    "get_all_int_dtypes",
    "get_all_math_dtypes",
    "get_all_qint_dtypes",
    "integral_types",
    "integral_types_and",
]

_Dtypes = tuple[Any, ...]
_FLOATING: _Dtypes = (ts.float32, ts.float64)
_COMPLEX: _Dtypes = (ts.complex64, ts.complex128)
_INTEGRAL: _Dtypes = (ts.uint8, ts.int8, ts.int16, ts.int32, ts.int64)


def _group(*parts: _Dtypes) -> Any:
    dtypes = tuple(dtype for part in parts for dtype in part)
    return lambda: dtypes


def _and(group: Any) -> Any:
    return lambda *more: (*group(), *more)


floating_types = _group(_FLOATING)
floating_types_and = _and(floating_types)
floating_types_and_half = partial(floating_types_and, ts.float16)
complex_types = _group(_COMPLEX)
complex_types_and = _and(complex_types)
floating_and_complex_types = _group(_FLOATING, _COMPLEX)
floating_and_complex_types_and = _and(floating_and_complex_types)
integral_types = _group(_INTEGRAL)
integral_types_and = _and(integral_types)
all_types = _group(_FLOATING, _INTEGRAL)
all_types_and = _and(all_types)
all_types_and_half = partial(all_types_and, ts.float16)
all_types_and_complex = _group(_FLOATING, _INTEGRAL, _COMPLEX)
all_types_and_complex_and = _and(all_types_and_complex)
double_types = _group((ts.float64, ts.complex128))


def get_all_int_dtypes() -> list[Any]:
    """The integers."""
    return [*_INTEGRAL]


def get_all_complex_dtypes(include_complex32: bool = False) -> list[Any]:
    """The complex ones; the half one is not a dtype here."""
    return [*_COMPLEX]


def get_all_fp_dtypes(include_half: bool = True, include_bfloat16: bool = True) -> list[Any]:
    """The real floating ones."""
    return [*_FLOATING, *[ts.float16] * include_half, *[ts.bfloat16] * include_bfloat16]


def get_all_dtypes(
    include_half: bool = True,
    include_bfloat16: bool = True,
    include_bool: bool = True,
    include_complex: bool = True,
    include_complex32: bool = False,
    include_qint: bool = False,
) -> list[Any]:
    """All of them, but for what is left out."""
    found = get_all_int_dtypes() + get_all_fp_dtypes(include_half, include_bfloat16)
    return found + [ts.bool] * include_bool + [*_COMPLEX] * include_complex


def get_all_math_dtypes(device: str) -> list[Any]:
    """Those with arithmetic on a device."""
    halves = str(device).startswith("cuda")
    return get_all_int_dtypes() + get_all_fp_dtypes(halves, False) + get_all_complex_dtypes()


def get_all_qint_dtypes() -> list[Any]:
    """None: there are no dtypes of quantized integers here."""
    return []
