"""Operands of a call that is made on several devices: the same numbers in the same order, whoever asks for them."""

from __future__ import annotations

from typing import Any

import numpy as np

import tesserack as ts
from tesserack.testing.conformance.exactly import rounded

__all__ = ["Given"]


class Given:
    """Makes the operands of one call: numbers that ``dtype`` holds, as tensors of ``kept``, on a device; every other
    element of their memory where ``stepped``."""

    def __init__(self, device: Any, dtype: str, kept: str, stepped: bool = False) -> None:
        self.device, self.name, self.dtype, self.stepped = device, dtype, getattr(ts, kept), stepped
        self.random = np.random.default_rng(11)
        self.wanted: list[Any] = []

    def _place(self, array: Any, dtype: ts.dtype) -> Any:
        if not self.stepped or not array.ndim:
            return ts.from_numpy(np.array(array)).to(dtype).to(self.device)
        wide = np.repeat(array, 2, axis=-1)
        return ts.from_numpy(wide).to(dtype).to(self.device)[..., ::2]

    def wrap(self, array: Any) -> Any:
        """An operand of these numbers that wants a gradient."""
        made = self._place(rounded(array, self.name), self.dtype).detach().requires_grad_()
        self.wanted.append(made)
        return made

    def __call__(self, *shape: int, scale: float = 1.0) -> Any:
        """About normal numbers."""
        return self.wrap(np.round(self.random.normal(size=shape) * scale * 64) / 64)

    def distinct(self, *shape: int) -> Any:
        """Numbers of which no two are equal, as long as there are fewer than 2,049."""
        count = int(np.prod(shape))
        return self.wrap((self.random.permutation(count) - count // 2).reshape(shape) * 1.0)

    def fixed(self, *shape: int, positive: bool = False) -> Any:
        """What no gradient is asked of."""
        values = np.round(self.random.normal(size=shape) * 64) / 64
        return self._place(rounded(np.abs(values) + 0.5 if positive else values, self.name), self.dtype)

    def wrap_whole(self, values: Any) -> Any:
        """These integers."""
        return ts.from_numpy(np.asarray(values, np.int64)).to(self.device)

    def integers(self, low: int, high: int, *shape: int) -> Any:
        """Integers of [low, high) in no order."""
        return self._place(self.random.integers(low, high, shape), ts.int64)

    def index(self, high: int, *shape: int) -> Any:
        """Places below ``high``."""
        return self.integers(0, high, *shape)

    def mask(self, *shape: int) -> Any:
        """Two thirds false."""
        return self._place(self.random.integers(0, 3, shape) == 0, ts.bool)

    def gradients(self, result: Any) -> Any:
        """Of a weighted sum of all results, by every operand that wants one."""
        results = [r for r in (result if isinstance(result, (tuple, list)) else [result]) if r.requires_grad]
        weights = [
            ts.from_numpy(np.asarray(np.round(np.cos(np.arange(1.0, r.numel() + 1)) * 64).reshape(tuple(r.shape)) / 64))
            .to(r.dtype)
            .to(r.device)
            for r in results
        ]
        return [
            ts.zeros_like(x) if grad is None else grad
            for x, grad in zip(
                self.wanted, ts.autograd.grad(results, self.wanted, weights, allow_unused=True), strict=True
            )
        ]
