"""Floating-point numbers taken apart, their neighbours, and slopes of samples: frexp, nextafter, gradient."""

from __future__ import annotations

import functools
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack._tensor import return_types
from tesserack.ops.numpy_names import numpy_names
from tesserack.ops.registry import operators
from tesserack.ops.results import deliver

__all__ = ["frexp", "gradient", "nextafter"]


def _check_float(name: str, *values: Any) -> None:
    """The values are tensors, and together of a floating dtype."""
    for value in values:
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(value).__name__}")
    if not functools.reduce(ts.promote_types, [value.dtype for value in values]).is_floating_point:
        got = " and ".join(str(value.dtype) for value in values)
        raise RuntimeError(f"{name}: only supports floating-point tensors, got {got}")


@numpy_names
def nextafter(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The next number of the dtype after ``input`` in the direction of ``other``, elementwise; they broadcast.

    ``RuntimeError`` for other dtypes than floating ones. The gradient is ``input``'s, where the two differ.

    >>> import tesserack as ts
    >>> bool(ts.nextafter(ts.tensor(1.0), ts.tensor(2.0)) == 1 + ts.finfo(ts.float32).eps)
    True
    """
    _check_float("nextafter", input, other)
    x, y = input, other
    if x.dtype is not y.dtype:
        dtype = ts.result_type(x, y)
        x, y = x.to(dtype), y.to(dtype)
    if x.shape != y.shape:
        x, y = ts.broadcast_tensors(x, y)
    if out is None and ts.is_grad_enabled() and (x.requires_grad or y.requires_grad):
        moved: Tensor = _nextafter_function().apply(x, y)
        return moved
    return deliver("nextafter", operators()["_nextafter"](x.detach(), y.detach()), out)


@functools.cache
def _nextafter_function() -> Any:
    """Defined when it is first used: functions of autograd are imported later than this module."""
    from tesserack.autograd import Function

    class Nextafter(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            apart = x != y
            ctx.save_for_backward(apart)
            ctx.save_for_forward(apart)
            moved: Tensor = operators()["_nextafter"](x.detach(), y.detach())
            return moved

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            (apart,) = ctx.saved_tensors
            return ts.where(apart, grad, 0), ts.zeros_like(grad)

        @staticmethod
        def jvp(ctx: Any, x: Tensor | None, y: Tensor | None) -> Tensor | None:
            (apart,) = ctx.saved_tensors
            return None if x is None else ts.where(apart, x, 0)

    return Nextafter


@numpy_names
def frexp(input: Tensor, *, out: tuple[Tensor, Tensor] | None = None) -> return_types.frexp:
    """``(mantissa, exponent)``, input = mantissa * 2**exponent, with the mantissa in [0.5, 1) and the exponent int32.

    Zeros, infinities and NaN are their own mantissas. ``RuntimeError`` for other dtypes than floating ones.

    >>> import tesserack as ts
    >>> ts.frexp(ts.tensor([6.0]))
    tesserack.return_types.frexp(
    mantissa=tensor([0.7500]),
    exponent=tensor([3], dtype=tesserack.int32))
    """
    _check_float("frexp", input)
    mantissa, exponent = operators()["_frexp"](input)
    if out is None:
        return return_types.frexp((mantissa, exponent))
    if (out[0].dtype, out[1].dtype) != (mantissa.dtype, exponent.dtype):
        raise RuntimeError(f"frexp: expected out of {mantissa.dtype} and {exponent.dtype}, got {out[0].dtype} and "
                           f"{out[1].dtype}")  # fmt: skip
    return return_types.frexp((deliver("frexp", mantissa, out[0]), deliver("frexp", exponent, out[1])))


@numpy_names
def gradient(
    input: Tensor, *, spacing: Any = None, dim: int | tuple[int, ...] | None = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """Slopes of samples along each of ``dim`` (all by default), by central differences; at the ends one-sided ones.

    ``spacing`` is a number, complex ones included, one for each dim, or a tensor of positions for each. ``edge_order``
    2 takes three samples at the ends. ``RuntimeError`` for fewer than ``edge_order + 1`` samples or spacings that do
    not fit.

    >>> import tesserack as ts
    >>> ts.gradient(ts.tensor([0.0, 1.0, 4.0, 9.0]))
    (tensor([1., 2., 4., 5.]),)
    """
    if not isinstance(input, Tensor):
        raise TypeError(f"gradient: expected a tensor, got {type(input).__name__}")
    if edge_order not in (1, 2):
        raise RuntimeError(f"gradient: only supports edge_order=1 and edge_order=2, got {edge_order}")
    dims = tuple(range(input.dim())) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    for d in dims:
        if not -input.dim() <= d < input.dim():
            raise IndexError(f"gradient: expected dims in [{-input.dim()}, {input.dim() - 1}], got {d}")
    dims = tuple(d % input.dim() for d in dims)
    if len(set(dims)) < len(dims):
        raise RuntimeError(f"gradient: expected each dim once, got {list(dims)}")
    if isinstance(spacing, Tensor) and spacing.dim() == 0:
        spacing = spacing.item()
    if spacing is None or isinstance(spacing, (int, float, complex)):
        steps: list[Any] = [1.0 if spacing is None else spacing] * len(dims)
    elif isinstance(spacing, Tensor):
        steps = [spacing]
    else:
        steps = [*spacing]
    if len(steps) != len(dims):
        raise RuntimeError(f"gradient: expected spacing for {len(dims)} dims, got {len(steps)}")
    return tuple(_slopes(input, d, step, edge_order) for d, step in zip(dims, steps, strict=True))


def _slopes(x: Tensor, dim: int, spacing: Any, edge_order: int) -> Tensor:
    count = x.shape[dim]
    if count < edge_order + 1:
        raise RuntimeError(
            f"gradient: expected each dimension size to be at least edge_order+1, got {count} along dim {dim}"
        )
    if not x.is_floating_point() and not x.is_complex():
        x = x.to(ts.get_default_dtype())
    if isinstance(spacing, Tensor):
        if spacing.dim() != 1 or spacing.numel() != count:
            raise RuntimeError(f"gradient: expected {count} positions along dim {dim}, got {tuple(spacing.shape)}")
        x = x.to(ts.promote_types(x.dtype, spacing.dtype))
        gaps = spacing.diff().to(x.dtype).reshape([-1 if d == dim else 1 for d in range(x.dim())])
    else:
        step: Any = complex(spacing) if isinstance(spacing, complex) else float(spacing)
        x = x if isinstance(step, float) or x.is_complex() else x.to(x.dtype.to_complex())
        gaps = x.new_full([count - 1 if d == dim else 1 for d in range(x.dim())], step)
    kept: Any = (lambda t: t) if isinstance(spacing, Tensor) else _native._constants_saved  # steps are numbers
    between = kept(x.diff(dim=dim) / gaps)  # slopes of the intervals

    def at(t: Tensor, start: int, length: int) -> Tensor:
        return t.narrow(dim, start, length)

    left, right = at(gaps, 0, count - 2), at(gaps, 1, count - 2)
    if isinstance(spacing, Tensor):
        middle = (at(between, 0, count - 2) * right + at(between, 1, count - 2) * left) / (left + right)
    else:  # what lies between two neighbours has no part, an infinity least of all
        middle = kept((at(x, 2, count - 2) - at(x, 0, count - 2)) / (left + right))
    first, last = at(between, 0, 1), at(between, count - 2, 1)
    if edge_order == 2:  # the parabola through three samples
        bend = kept((at(between, 1, 1) - first) / (at(gaps, 0, 1) + at(gaps, 1, 1)))
        end = kept((last - at(between, count - 3, 1)) / (at(gaps, count - 3, 1) + at(gaps, count - 2, 1)))
        first = first - kept(bend * at(gaps, 0, 1))
        last = last + kept(end * at(gaps, count - 2, 1))
    return ts.cat([first, middle, last], dim)
