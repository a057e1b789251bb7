"""``make_tensor``."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from tesserack import _native
from tesserack._native import Size, Tensor, dtype

__all__ = ["make_tensor"]


def make_tensor(
    *shape: int | Sequence[int],
    dtype: dtype,
    device: Any = None,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
    generator: Any = None,
) -> Tensor:
    """A tensor of random values in [low, high).

    By default [-9, 9), for integers [-9, 10), without a sign [0, 10), both values of bool. Bounds outside the dtype's
    range are clamped to it.

    ``noncontiguous`` leaves gaps between elements; ``exclude_zero`` replaces zeros by the smallest positive number.

    >>> import tesserack as ts
    >>> make_tensor(2, 3, dtype=ts.float32).shape
    tesserack.Size([2, 3])
    """
    sizes: tuple[int, ...] = Size(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"make_tensor: requires_grad needs a floating dtype, got {dtype}")
    if noncontiguous and memory_format is not None:
        raise ValueError("make_tensor: expected noncontiguous or a memory_format, got both")
    bounds = _bounds(dtype, low, high)
    gaps = noncontiguous and math.prod(sizes) > 1
    result = _draw((*sizes[:-1], sizes[-1] * 2) if gaps else sizes, dtype, device, bounds, generator)
    if gaps:
        result = result[..., 1::2]
    if memory_format is not None:
        result = result.contiguous(memory_format=memory_format)
    if exclude_zero:
        result[result == 0] = _smallest(dtype)
    return result.requires_grad_() if requires_grad else result


def _range(dtype: dtype) -> tuple[float, float]:
    """The smallest value that may be drawn and the first that may not."""
    import tesserack

    if dtype is _native.bool:
        return 0, 2
    if dtype.is_floating_point or dtype.is_complex:
        limits = tesserack.finfo(dtype.to_real() if dtype.is_complex else dtype)
        return limits.min, limits.max
    integers = tesserack.iinfo(dtype)
    return integers.min, min(integers.max + 1, 2**63 - 1)  # bounds of randint are int64


def _bounds(dtype: dtype, low: float | None, high: float | None) -> tuple[float, float]:
    floating = dtype.is_floating_point or dtype.is_complex
    least, most = _range(dtype)
    default = (0, 2) if dtype is _native.bool else (-9, 9 if floating else 10)
    low, high = (default[0] if low is None else low), (default[1] if high is None else high)
    if math.isnan(low) or math.isnan(high) or low > high or (low == high and not floating):
        raise ValueError(f"make_tensor: expected low < high, got {low} and {high}")
    if high < least or low >= most:
        raise ValueError(f"make_tensor: expected bounds within [{least}, {most}) for {dtype}, got [{low}, {high})")
    if low == high:
        warnings.warn(
            "make_tensor: low equals high, so that all values are the same; tesserack.full says so plainly",
            FutureWarning,
            stacklevel=3,
        )
    low, high = min(max(low, least), most), min(max(high, least), most)
    return (low, high) if floating else (math.ceil(low), math.ceil(high))


def _draw(sizes: Any, dtype: dtype, device: Any, bounds: tuple[float, float], generator: Any) -> Tensor:
    from tesserack import empty, randint, view_as_real

    low, high = bounds
    if not (dtype.is_floating_point or dtype.is_complex):
        return randint(int(low), int(high), sizes, device=device, generator=generator).to(dtype)
    result = empty(
        sizes, dtype=_native.float32 if dtype.is_floating_point and dtype.itemsize < 2 else dtype, device=device
    )
    parts = view_as_real(result) if dtype.is_complex else result
    if high - low > _range(dtype)[1]:
        parts.uniform_(low / 2, high / 2, generator=generator).mul_(2)  # the width itself would be infinite
    else:
        parts.uniform_(low, high, generator=generator)
    return result.to(dtype)


def _smallest(dtype: dtype) -> float:
    if not (dtype.is_floating_point or dtype.is_complex):
        return 1
    import tesserack

    return tesserack.finfo(dtype.to_real() if dtype.is_complex else dtype).tiny
