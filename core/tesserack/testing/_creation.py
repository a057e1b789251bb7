"""``make_tensor``."""

from __future__ import annotations

import math
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
    """A tensor of random values in [low, high): by default [-9, 9), [0, 10) for uint8, both values of bool.

    ``noncontiguous`` leaves gaps between elements; ``exclude_zero`` replaces zeros by the smallest positive number.

    >>> import tesserack as ts
    >>> make_tensor(2, 3, dtype=ts.float32).shape
    tesserack.Size([2, 3])
    """
    sizes: tuple[int, ...] = Size(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"make_tensor: requires_grad needs a floating dtype, got {dtype}")
    bounds = _bounds(dtype, low, high)
    result = (
        _strided(sizes, dtype, device, bounds, generator)
        if noncontiguous and math.prod(sizes) > 1
        else _draw(sizes, dtype, device, bounds, generator)
    )
    if memory_format is not None:
        result = result.contiguous(memory_format=memory_format)
    if exclude_zero:
        result[result == 0] = _smallest(dtype)
    return result.requires_grad_() if requires_grad else result


def _bounds(dtype: dtype, low: float | None, high: float | None) -> tuple[float, float]:
    if dtype is _native.bool:
        return 0, 2
    default = (0, 10) if not dtype.is_signed else (-9, 9)
    chosen = (default[0] if low is None else low, default[1] if high is None else high)
    if math.isnan(chosen[0]) or math.isnan(chosen[1]) or chosen[0] >= chosen[1]:
        raise ValueError(f"make_tensor: expected low < high, got {chosen[0]} and {chosen[1]}")
    return chosen


def _draw(sizes: Any, dtype: dtype, device: Any, bounds: tuple[float, float], generator: Any) -> Tensor:
    from tesserack import rand, randint

    low, high = bounds
    if dtype.is_complex:
        from tesserack import complex

        real = dtype.to_real()
        return complex(*(_draw(sizes, real, device, bounds, generator) for _ in range(2)))
    if dtype.is_floating_point:
        wide = _native.float32 if dtype.itemsize < 4 else dtype
        return (rand(sizes, dtype=wide, device=device, generator=generator) * (high - low) + low).to(dtype)
    return randint(math.ceil(low), math.ceil(high), sizes, device=device, generator=generator).to(dtype)


def _strided(sizes: tuple[int, ...], dtype: dtype, device: Any, bounds: tuple[float, float], generator: Any) -> Tensor:
    wide = _draw((*sizes[:-1], sizes[-1] * 2), dtype, device, bounds, generator)
    return wide[..., ::2]


def _smallest(dtype: dtype) -> float:
    if not dtype.is_floating_point:
        return 1
    import tesserack

    return tesserack.finfo(dtype).tiny
