"""Normal numbers from uniform ones by Box and Muller (1958): sixteen at a time, or one after the other."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tesserack.ops.torch_random._engine import Stream, in_pieces

__all__ = ["fma32", "fma64", "normals", "one_by_one"]

# Polynomials and reductions of Cephes' logf, sinf and cosf (Moshier 1992), in the order of evaluation.
_LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = (2.443315711809948e-005, -1.388731625493765e-003, 4.166664568298827e-002)
_QUARTER_PI = (0.78515625, 2.4187564849853515625e-4, 3.77489497744594108e-8)
_f32 = np.float32
_TINY = 1e-250  # above this, products with normal numbers do not vanish
_BELOW_F32, _HALF_F32 = (1 << 29) - 1, 1 << 28  # the bits of a float64 below those of a normal float32


def _odd_sum(a: Any, b: Any) -> Any:
    """a + b in float64, rounded to odd, so that rounding the sum again to fewer bits rounds once."""
    total, error = _two_sum(a, b)
    bits = total.view(np.int64)
    wrong = np.flatnonzero((error != 0) & (bits & 1 == 0))
    if wrong.size:
        flat = bits.reshape(-1)
        flat[wrong] += np.where((error.flat[wrong] > 0) == (total.flat[wrong] > 0), 1, -1)
        return flat.reshape(bits.shape).view(np.float64)
    return total


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """A rounded sum and its error (Knuth)."""
    total = a + b
    part = total - a
    rest = total - part
    np.subtract(a, rest, out=rest)
    rest += np.subtract(b, part, out=part)
    return total, rest


def _split(a: Any) -> tuple[Any, Any]:
    """A number as the sum of two with half as many bits (Veltkamp)."""
    high = a * 134217729.0
    high = high - (high - a)
    return high, a - high


def fma32(a: Any, b: Any, c: Any) -> Any:
    """a * b + c in float32, rounded once."""
    product = np.multiply(a, b, dtype=np.float64)  # exact
    total = np.add(product, c, dtype=np.float64)
    # Rounding twice differs only where the first rounding ends in the middle of two float32 numbers.
    if ((np.asarray(total).view(np.int64) & _BELOW_F32) == _HALF_F32).any():
        total = _odd_sum(product, np.asarray(c, np.float64))
    return total.astype(_f32)


def fma64(a: Any, b: float, c: float) -> Any:
    """a * b + c in float64, rounded once (Boldo and Melquiond 2008)."""
    a = np.asarray(a, np.float64)
    if abs(b) == 1.0 or (c == 0 and abs(b) > _TINY):
        return a * b + c  # one of the two operations is exact
    (a1, a2), (b1, b2) = _split(a), _split(np.float64(b))
    high = a * b
    low, part = a1 * b1, a1 * b2
    low -= high
    low += part
    low += np.multiply(a2, b1, out=part)
    low += np.multiply(a2, b2, out=part)
    middle, lowest = _two_sum(np.float64(c), low)
    total, error = _two_sum(high, middle)
    total += _odd_sum(lowest, error)
    return total


def _log(x: Any) -> Any:
    """The logarithm of positive float32 numbers."""
    fraction, exponent = np.frexp(x)
    small = fraction < _f32(math.sqrt(0.5))
    e = (exponent - small).astype(_f32)
    x = (fraction - _f32(1)) + np.where(small, fraction, _f32(0))
    z = x * x
    y = np.full_like(x, _LOG[0])
    for c in _LOG[1:]:
        y = fma32(y, x, _f32(c))
    y = fma32(y * x, z, e * _f32(-2.12194440e-4))
    y = y - z * _f32(0.5)
    return fma32(e, _f32(0.693359375), x + y)


def _sin_cos(x: Any) -> tuple[Any, Any]:
    """Sine and cosine of float32 numbers from 0 to 2 pi."""
    octant = ((x * _f32(1.27323954473516)).astype(np.int32) + 1) & ~1
    y = octant.astype(_f32)
    for part in _QUARTER_PI:
        x = fma32(y, _f32(-part), x)
    z = x * x
    cos = fma32(fma32(z, _f32(_COS[0]), _f32(_COS[1])), z, _f32(_COS[2])) * z
    cos = fma32(cos, z, -(z * _f32(0.5))) + _f32(1)
    sin = fma32(fma32(z, _f32(_SIN[0]), _f32(_SIN[1])), z, _f32(_SIN[2])) * z
    sin = fma32(sin, x, x)
    straight = octant & 2 == 0
    sine, cosine = np.where(straight, sin, cos), np.where(straight, cos, sin)
    return np.where(octant & 4, -sine, sine), np.where((octant - 2) & 4, cosine, -cosine)


def _blocks32(u: Any, mean: float, std: float) -> Any:
    """Rows of sixteen uniform numbers to as many normal ones, as PyTorch's AVX2 kernel for float32 does."""
    radius = np.sqrt(_f32(-2) * _log(_f32(1) - u[:, :8]))
    sine, cosine = _sin_cos(_f32(2 * math.pi) * u[:, 8:])
    return fma32(np.concatenate([radius * cosine, radius * sine], axis=1), _f32(std), _f32(mean))


# --- in float64, where PyTorch calls the C library -------------------------------------------------------------------

_Loop = Callable[[Any], Any]
_PROBES = 8192


def _each(function: Callable[[float], float]) -> _Loop:
    """Python's function, which calls the C library's, of each number of an array of rows."""

    def loop(x: Any) -> Any:
        return np.fromiter(map(function, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)

    return loop


def _turned(x: Any) -> Any:
    """Cosines and sines at once, as the parts of complex numbers."""
    turned = np.zeros(x.shape, np.complex128)
    turned.imag = x
    return np.exp(turned, out=turned)


def _same(loop: _Loop, exact: _Loop, top: float) -> bool:
    """Whether a loop of NumPy's gives the C library's bits: on some processors it is one of its own, whose results
    differ in the last bit in a part of the cases that so many probes do not miss."""
    probes = np.random.RandomState(1).random_sample(_PROBES)
    probes = (1 - probes) * top
    return bool((loop(probes) == exact(probes)).all())


@functools.cache
def _loops() -> tuple[_Loop, _Loop, _Loop]:
    """Logarithm, sine and cosine with the C library's bits: the quickest that have them here."""
    found: list[_Loop] = []
    for exact, top, candidates in (
        (math.log, 1.0, (np.log,)),
        (math.sin, 2 * math.pi, (np.sin, lambda x: _turned(x).imag)),
        (math.cos, 2 * math.pi, (np.cos, lambda x: _turned(x).real)),
    ):
        sure = _each(exact)
        found.append(next((loop for loop in candidates if _same(loop, sure, top)), sure))
    return found[0], found[1], found[2]


def _blocks64(u: Any, mean: float, std: float) -> Any:
    log, sin, cos = _loops()
    out = np.empty_like(u)
    radius = np.subtract(1.0, u[:, :8])
    radius = log(radius)
    radius *= -2
    np.sqrt(radius, out=radius)
    theta = u[:, 8:] * (2 * math.pi)
    np.multiply(radius, cos(theta), out=out[:, :8])
    np.multiply(radius, sin(theta), out=out[:, 8:])
    return fma64(out, std, mean)


def normals(stream: Stream, n: int, dtype: str, mean: float, std: float) -> Any:
    """At least sixteen numbers: in blocks, and the last sixteen anew if they fill no whole block.

    Dtypes narrower than float32 are rounded from it, and draw nothing for the block that is not whole.
    """
    draw, turn = (stream.doubles, _blocks64) if dtype == "float64" else (stream.uniforms, _blocks32)
    whole = n // 16 * 16
    blocks = in_pieces(whole, lambda k: turn(draw(k).reshape(-1, 16), mean, std).ravel())
    if n == whole:
        return blocks
    if dtype in ("float32", "float64"):
        draw(n - whole)
    out = np.empty(n, blocks.dtype)
    out[:whole] = blocks
    out[-16:] = turn(draw(16).reshape(1, 16), mean, std)[0]
    return out


def one_by_one(stream: Stream, n: int, mean: float = 0.0, std: float = 1.0) -> Any:
    """Numbers in float64, two from each pair of uniform numbers; one that is left stays for the next call."""
    out = np.empty(n)
    k = 0
    if n and (pair := stream.left_over()) is not None:
        out[0] = _second(*pair)
        k = 1
    while k < n:
        u1, u2 = stream.doubles(2).tolist()
        radius, theta = math.sqrt(-2.0 * math.log1p(-u2)), 2.0 * math.pi * u1
        out[k] = radius * math.cos(theta)
        if k + 1 < n:
            out[k + 1] = radius * math.sin(theta)
        else:
            stream.back = 4
        k += 2
    return fma64(out, std, mean)


def _second(u1: float, u2: float) -> float:
    return math.sqrt(-2.0 * math.log1p(-u2)) * math.sin(2.0 * math.pi * u1)
