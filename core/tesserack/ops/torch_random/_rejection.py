"""Variates by rejection, one element after the other: as many numbers as each takes, in PyTorch's order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import tesserack as ts
from tesserack import Tensor
from tesserack.ops.torch_random._engine import Stream
from tesserack.ops.torch_random._normal import one_by_one

__all__ = ["SAMPLERS"]

_NUMPY = {ts.float64: np.float64, ts.float16: np.float16}  # bfloat16 is worked out in float32
_third, _0331 = np.float32(1.0) / np.float32(3.0), float(np.float32(0.0331))


def _gamma(stream: Stream, alpha: Any) -> float:
    """Marsaglia and Tsang 2000; parts of it in the dtype of ``alpha``, a NumPy scalar."""
    if not 0 <= alpha < math.inf:
        return math.inf if alpha > 0 else math.nan
    scale = 1.0
    if alpha < 1:
        if alpha == 0:
            return 0.0
        scale = math.pow(1 - stream.double(), float(np.float32(1) / alpha))
        alpha = alpha + type(alpha)(1)
    d = float(alpha - _third)
    c = 1 / math.sqrt(9 * d)
    while True:
        x = float(one_by_one(stream, 1)[0])
        if (y := 1 + c * x) <= 0:
            continue
        v = y * y * y
        u = 1 - stream.double()
        xx = x * x
        if u < 1 - _0331 * xx * xx or math.log(u) < 0.5 * xx + d * (1 - v + math.log(v)):
            return scale * d * v


def _poisson(stream: Stream, rate: float) -> float:
    """Hörmann 1993, algorithm PTRS, from ten on; below, uniform numbers are multiplied."""
    if rate in (0, math.inf):
        return rate
    if rate < 10:
        end, product, count = math.exp(-rate), stream.double(), 0
        while product > end:
            product *= stream.double()
            count += 1
        return count
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    log_inverse = math.log(1.1239 + 1.1328 / (b - 3.4))
    v_r = 0.9277 - 3.6224 / (b - 2)
    while True:
        u = stream.double() - 0.5
        v = stream.double()
        us = 0.5 - abs(u)
        if us == 0:
            continue
        k = math.floor((2 * a / us + b) * u + rate + 0.43)
        if us >= 0.07 and v <= v_r:
            return k
        if k < 0 or (us < 0.013 and v > us):
            continue
        left = (math.log(v) if v else -math.inf) + log_inverse - math.log(a / (us * us) + b)
        if left <= -rate + k * math.log(rate) - math.lgamma(k + 1):
            return k


def _stirling_tail(k: float) -> float:
    """What Stirling's formula leaves of the logarithm of k factorial (Hörmann 1993)."""
    if k <= 9:
        return math.lgamma(k + 1) - (k + 0.5) * math.log(k + 1) + (k + 1) - 0.5 * math.log(2 * math.pi)
    square = (k + 1) * (k + 1)
    return (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1)


def _few_successes(stream: Stream, count: Any, p: Any) -> Any:
    """Lengths of runs without success are added up until they pass ``count``."""
    log_miss = float(np.log1p(-p))
    total, successes = 0.0, 0
    while True:
        u = stream.double()
        total += math.ceil(math.log(u) / log_miss) if u else math.inf
        if total > count:
            return type(count)(successes)
        successes += 1


def _many_successes(stream: Stream, count: Any, p: Any) -> Any:
    """Hörmann 1993, algorithm BTRS."""
    one = type(count)(1)
    spread = float(np.sqrt(count * p * (one - p)))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * float(p)
    center = float(count * p) + 0.5
    v_r = 0.92 - 4.2 / b
    odds = float(p / (one - p))
    alpha = (2.83 + 5.1 / b) * spread
    m = math.floor((count + one) * p)
    n = float(count)
    while True:
        u = stream.double() - 0.5
        v = stream.double()
        us = 0.5 - abs(u)
        if us == 0:
            continue
        k = math.floor((2 * a / us + b) * u + center)
        if us >= 0.07 and v <= v_r:
            return type(count)(k)
        if k < 0 or k > count:
            continue
        left = math.log(v * alpha / (a / (us * us) + b)) if v else -math.inf
        bound = (m + 0.5) * math.log((m + 1) / (odds * (n - m + 1))) + (n + 1) * math.log((n - m + 1) / (n - k + 1))
        bound += (k + 0.5) * math.log(odds * (n - k + 1) / (k + 1))
        bound += _stirling_tail(m) + _stirling_tail(n - m) - _stirling_tail(k) - _stirling_tail(n - k)
        if left <= bound:
            return type(count)(k)


def _binomial(stream: Stream, count: Any, p: Any) -> Any:
    if count <= 0 or p <= 0:
        return 0
    if p >= 1 or count == math.inf:
        return count
    if p > 0.5:
        return count - _binomial(stream, count, type(p)(1.0 - float(p)))
    return (_many_successes if count * p >= 10 else _few_successes)(stream, count, p)


# --- of tensors ----------------------------------------------------------------------------------------------------


def _scalars(t: Tensor) -> Any:
    """The elements as NumPy's scalars, from the first to the last."""
    wide = t.detach().cpu()
    wide = wide if wide.dtype in _NUMPY else wide.float()
    return wide.contiguous().reshape(-1).numpy()


def _drawn(like: Tensor, generator: Any, draw: Callable[..., Any], *parameters: Iterable[Any]) -> Tensor:
    """One variate for each element of ``like``, in float64 and where ``like`` is."""
    with Stream(generator, like.device) as stream:
        values = [float(draw(stream, *each)) for each in zip(*parameters, strict=True)]
    return ts.tensor(values, dtype=ts.float64).reshape(like.shape).to(like.device)


def gamma(alpha: Tensor, generator: Any) -> Tensor:
    """Gamma variates, in float64, at least the smallest normal number of the dtype of ``alpha``."""
    return _drawn(alpha, generator, _gamma, _scalars(alpha)).clamp(min=ts.finfo(alpha.dtype).tiny)


def poisson(rate: Tensor, generator: Any) -> Tensor:
    """Poisson variates, in float64."""
    return _drawn(rate, generator, _poisson, _scalars(rate.double()).tolist())


def binomial(count: Tensor, prob: Tensor, generator: Any) -> Tensor:
    """Binomial variates, in float64, of operands of one shape."""
    return _drawn(prob, generator, _binomial, _scalars(count.to(prob.dtype)), _scalars(prob))


def slopes(like: Tensor, lower: float, upper: float) -> Tensor:
    """The slopes of ``rrelu``, in float64: drawn where ``like`` is not positive."""
    lower, upper = ts.tensor([lower, upper], dtype=like.dtype).tolist()
    with Stream(None, like.device) as stream:
        drawn = [1.0 if x > 0 else stream.double() * (upper - lower) + lower for x in _scalars(like)]
    return ts.tensor(drawn, dtype=ts.float64).reshape(like.shape).to(like.device)


SAMPLERS: dict[str, Callable[..., Tensor]] = {"gamma": gamma, "poisson": poisson, "binomial": binomial, "rrelu": slopes}
