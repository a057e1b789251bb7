"""What is one operator here, as the operators of ATen that PyTorch makes it of: what a mode is to see."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.aten.operators import namespace
from tesserack.ops.registry import operators

__all__ = ["NUMBER_FIRST", "PARTS", "SEEN"]

# The kinds of items of basic_index, four numbers each: an index, a slice of (start, length, step), a new dim.
_SELECT, _SLICE = 0, 1


def _basic_index(self: Tensor, items: Sequence[int]) -> Tensor:
    aten, dim = namespace("aten"), 0
    # Of several slices those that take all are no steps, unless where they end may follow from values.
    mode = getattr(self, "fake_mode", None)
    all_seen = len(items) == 4 or bool(mode is not None and mode.unknown is not None and mode.unknown.values)
    for k in range(0, len(items), 4):
        kind, start, length, step = items[k : k + 4]
        if kind == _SELECT:
            self = aten.select.int(self, dim, start)
            continue
        if kind == _SLICE:
            size = self.shape[dim]
            if step < 0:
                self = aten.flip.default(self, [dim])
                start, step = size - 1 - start, -step
            stop = start + length * step
            if all_seen or (start, length, step) != (0, size, 1):
                self = aten.slice.Tensor(
                    self, dim, start, sys.maxsize if (length or not size) and stop >= size else stop, step
                )
        else:
            self = aten.unsqueeze.default(self, dim)
        dim += 1
    return aten.alias.default(self) if not items else self


def _joined(x: Tensor, kept: int = 1) -> Tensor:
    """All dims but the last ones in one. By -1, as long as there are elements: of none any number would fit."""
    last = x.shape[len(x.shape) - kept :]
    return x.reshape(-1 if math.prod(last) else math.prod(x.shape[: len(x.shape) - kept]), *last)


def _rows(x: Tensor) -> Tensor:
    return x if x.ndim == 2 else _joined(x)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rows = _rows(input)
    turned = weight.t() if weight.ndim == 2 else weight.unsqueeze(1)
    out = ts.mm(rows, turned) if bias is None else ts.addmm(bias, rows, turned)
    if weight.ndim == 1:
        out = out.squeeze(1)
    return out if input.ndim == 2 else out.view([*input.shape[:-1], *weight.shape[:-1]])


def _linear_backward_input(grad: Tensor, weight: Tensor, input_size: Sequence[int]) -> Tensor:
    if weight.ndim == 1:
        return grad.unsqueeze(-1) * weight
    rows = _rows(grad)
    out = ts.mm(rows, weight)
    return out if grad.ndim == 2 else out.view(input_size)


def _linear_backward_weight(grad: Tensor, input: Tensor, weight_size: Sequence[int]) -> Tensor:
    rows = _rows(input)
    if len(weight_size) == 1:
        return ts.mm(grad.reshape(1, -1), rows).squeeze(0)
    return ts.mm(_joined(grad).t(), rows)


def _matmul(self: Tensor, other: Tensor) -> Tensor:
    if self.ndim == 0 or other.ndim == 0:
        raise RuntimeError(
            f"matmul: both arguments need to be at least 1D, but they are {self.ndim}D and {other.ndim}D"
        )
    if self.ndim == 1 and other.ndim == 1:
        return ts.dot(self, other)
    if self.ndim == 1:
        return _matmul(self.unsqueeze(0), other).squeeze(-2)
    if other.ndim == 1:
        return ts.mv(self, other) if self.ndim == 2 else _matmul(self, other.unsqueeze(1)).squeeze(-1)
    if self.ndim == 2 and other.ndim == 2:
        return ts.mm(self, other)
    if other.ndim == 2:
        return ts.mm(_joined(self), other).view([*self.shape[:-1], other.shape[1]])
    lead = ts.broadcast_shapes(self.shape[:-2], other.shape[:-2])
    a = _joined(self.expand(*lead, *self.shape[-2:]), 2)
    b = _joined(other.expand(*lead, *other.shape[-2:]), 2)
    return ts.bmm(a, b).view(*lead, self.shape[-2], other.shape[-1])


def _sum_to_size(self: Tensor, size: Sequence[int]) -> Tensor:
    lead = self.ndim - len(size)
    dims = [*range(lead), *(lead + k for k, n in enumerate(size) if n == 1 and self.shape[lead + k] != 1)]
    out = self.sum(dims, keepdim=True) if dims else self
    return out.view(list(size)) if lead else out


def _matmul_turned(self: Tensor, mat2: Tensor, turn_self: bool, turn_mat2: bool) -> Tensor:
    left = self.transpose(-2, -1) if turn_self and self.ndim > 2 else self.t() if turn_self else self
    right = mat2.transpose(-2, -1) if turn_mat2 and mat2.ndim > 2 else mat2.t() if turn_mat2 else mat2
    return _matmul(left, right)


def _argsort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    return self.sort(dim=dim, descending=descending, stable=stable)[1] if stable else self.sort(dim, descending)[1]


# A number as the first operand: PyTorch has the tensor first.
NUMBER_FIRST: dict[str, Callable[..., Any]] = {
    "add": lambda number, other, alpha: operators()["add"](other * alpha if alpha != 1 else other, number),
    "sub": lambda number, other, alpha: operators()["rsub"](other, number, alpha=alpha),
    "mul": lambda number, other: other * number,
    "div": lambda number, other: other.reciprocal() * number,
}


def _conj(x: Any) -> Any:
    """What a gradient is multiplied with: of a complex derivative the conjugate."""
    return x.conj() if isinstance(x, Tensor) and x.is_complex() else x.conjugate() if isinstance(x, complex) else x


# The derivatives of pointwise operators that PyTorch writes with plain ones.
_DERIVATIVES: dict[str, Callable[..., Any]] = {
    "add_grad1": lambda grad, alpha: grad * _conj(alpha),
    "sub_grad1": lambda grad, alpha: -grad if alpha == 1 else grad * -_conj(alpha),
    "neg_grad0": lambda grad: -grad,
    "mul_grad0": lambda grad, other: grad * _conj(other),
    "mul_grad1": lambda grad, input: grad * _conj(input),
    "div_grad0": lambda grad, other: grad / _conj(other),
    "div_grad1": lambda grad, input, other: -grad * _conj((input / other) / other),
    "exp_grad0": lambda grad, result: grad * _conj(result),
    "sqrt_grad0": lambda grad, result: grad / (2 * _conj(result)),
    "log_grad0": lambda grad, input: grad / _conj(input),
    "sin_grad0": lambda grad, input: grad * _conj(input.cos()),
    "cos_grad0": lambda grad, input: grad * -_conj(input.sin()),
}


def _channel_dropout(spatial: int) -> Callable[..., Any]:
    """Whole channels at once; what is drawn is a step of its own."""

    def parts(input: Tensor, p: float, training: bool, inplace: bool) -> Any:
        fits = 0 < p <= 1 and input.is_floating_point() and input.numel() and input.ndim in (spatial + 1, spatial + 2)
        if not training or not fits or (spatial == 2 and input.ndim == 3):
            return NotImplemented
        leading = 2 if spatial == 2 or input.ndim == spatial + 2 else 1
        sizes = [*input.shape[:leading], *[1] * (input.ndim - leading)]
        mask = ts.rand(sizes, dtype=ts.float32, device=input.device) >= p
        out = operators()["_dropout_apply"](input, mask, 0 if p >= 1 else 1 / (1 - p))
        return input.copy_(out) if inplace else out

    return parts


def _local_response_norm(input: Tensor, size: int, alpha: float, beta: float, k: float) -> Any:
    if input.ndim < 3 or size <= 0 or not input.numel():
        return NotImplemented
    squares = input.square().reshape(input.shape[0], 1, input.shape[1], -1)
    padded = ts.constant_pad_nd(squares, (0, 0, size // 2, (size - 1) // 2))
    mean = ts.nn.functional.avg_pool2d(padded, (size, 1), 1).reshape(input.shape)
    return input / (mean * alpha + k) ** beta


# Composites whose own parts are made out of sight; NotImplemented for arguments that they refuse or warn of.
SEEN: dict[str, Callable[..., Any]] = {
    **{f"dropout{spatial}d": _channel_dropout(spatial) for spatial in (1, 2, 3)},
    "local_response_norm": _local_response_norm,
}
PARTS: dict[str, Callable[..., Any]] = {
    "_matmul_turned": _matmul_turned,
    "argsort": _argsort,
    **_DERIVATIVES,
    "basic_index": _basic_index,
    "linear": _linear,
    "linear_backward_input": _linear_backward_input,
    "linear_backward_weight": _linear_backward_weight,
    "matmul": _matmul,
    "_sum_to_size": _sum_to_size,
}
