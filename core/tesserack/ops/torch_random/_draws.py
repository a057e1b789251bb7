"""One function per distribution: how many numbers, as which dtype, to a NumPy array in the order they are drawn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tesserack.ops.torch_random._engine import Stream, in_pieces
from tesserack.ops.torch_random._normal import fma32, fma64, normals, one_by_one

__all__ = ["bernoulli", "cauchy", "exponential", "geometric", "integers", "log_normal", "naturals", "normal"]
__all__ += ["order", "uniform"]

_WIDE = 1 << 28  # from this range on, words of 64 bits
_log1p, _tan, _exp = (np.frompyfunc(f, 1, 1) for f in (math.log1p, math.tan, math.exp))


def uniform(stream: Stream, n: int, dtype: str, low: float, high: float) -> Any:
    """Uniform numbers in [low, high)."""
    if (low, high) == (0, 1):
        return in_pieces(n, stream.doubles if dtype == "float64" else stream.uniforms)
    if dtype == "float64":
        return in_pieces(n, lambda k: fma64(stream.doubles(k), high - low, low))
    first, last = np.array([low, high], np.float32)
    if dtype == "float32":
        return in_pieces(n, lambda k: fma32(stream.uniforms(k), last - first, first))
    return in_pieces(n, lambda k: stream.uniforms(k) * (last - first) + first)


def normal(stream: Stream, n: int, dtype: str, mean: float, std: float, dense: bool) -> Any:
    """Normal numbers: in blocks where there are sixteen in one piece of memory."""
    if dense and n >= 16:
        return normals(stream, n, dtype, mean, std)
    return one_by_one(stream, n, mean, std)


def integers(stream: Stream, n: int, low: int, span: int) -> Any:
    """Integers in [low, low + span), modulo 2^64."""

    def some(k: int) -> Any:
        words = stream.bits64(k) if span >= _WIDE else stream.bits32(k)
        if span < 1 << 64:
            words = words % np.uint64(span)
        return (words + np.uint64(low & 0xFFFF_FFFF_FFFF_FFFF)).astype(np.int64)

    return in_pieces(n, some)


def naturals(stream: Stream, n: int, dtype: str, limit: int) -> Any:
    """Integers from zero to a dtype's limit."""
    words = stream.bits64(n) if dtype in ("int64", "uint64", "float64") else stream.bits32(n)
    return (words % np.uint64(limit + 1)).astype(np.int64)


def order(stream: Stream, n: int) -> Any:
    """0 to n - 1 shuffled: each place is exchanged with one of those after it."""
    out = list(range(n))
    draws = stream.bits32(max(n - 1, 0)) % np.arange(n, 1, -1, dtype=np.uint64)
    for i, z in enumerate(draws.tolist()):
        out[i], out[i + z] = out[i + z], out[i]
    return np.array(out, np.int64)


def exponential(stream: Stream, n: int, rate: float) -> Any:
    """Exponential numbers."""
    return in_pieces(n, lambda k: (-1.0 / rate) * _log1p(-stream.doubles(k)).astype(np.float64))


def cauchy(stream: Stream, n: int, median: float, sigma: float) -> Any:
    """Numbers of a Cauchy distribution."""
    return median + sigma * _tan(math.pi * (stream.doubles(n) - 0.5)).astype(np.float64)


def geometric(stream: Stream, n: int, p: float) -> Any:
    """Tosses up to the first success."""
    with np.errstate(divide="ignore"):
        u = stream.doubles(n)
    logs = np.array([math.log(x) if x else -math.inf for x in u.tolist()])
    return np.ceil(logs / math.log(1 - p))


def log_normal(stream: Stream, n: int, mean: float, std: float) -> Any:
    """Numbers whose logarithms are normal."""
    return _exp(one_by_one(stream, n, mean, std)).astype(np.float64)


def bernoulli(stream: Stream, n: int, p: Any) -> Any:
    """True with probability p: a number or float64 array is met with 53 bits, a float32 array with 24."""
    single = isinstance(p, np.ndarray) and p.dtype == np.float32
    return (stream.uniforms(n) if single else stream.doubles(n)) < p
