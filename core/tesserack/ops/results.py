"""Results handed over in a tensor that the caller gave as ``out=``."""

from __future__ import annotations

import warnings
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["deliver", "real_only", "refilled", "strided_only"]


def strided_only(op: str, layout: Any, error: type[Exception] = NotImplementedError) -> None:
    """Refuses a ``layout=`` of a function that makes dense tensors alone."""
    if layout is None or layout is ts.strided:
        return
    if not isinstance(layout, ts.layout):
        raise TypeError(f"{op}(): argument 'layout' does not take a {type(layout).__name__}")
    raise error(f"{op}: is not implemented for tensors of layout {layout}; make a dense one and convert it, "
                ".to_sparse()")  # fmt: skip


def real_only(op: str, *values: Any) -> None:
    """Refuses complex tensors and numbers, with ``NotImplementedError``."""
    for value in values:
        if isinstance(value, complex) or (isinstance(value, Tensor) and value.is_complex()):
            got = value.dtype if isinstance(value, Tensor) else value
            raise NotImplementedError(f"{op}: not implemented for complex numbers, got {got}; try .real or .abs()")


def deliver(op: str, value: Tensor, out: Tensor | None) -> Tensor:
    """``value``, or ``out`` resized to its shape and filled with it.

    ``RuntimeError`` if ``out`` is on another device, if its dtype cannot hold ``value``, or if either requires a
    gradient that would be lost.
    """
    if out is None:
        return value
    if out.device != value.device:
        raise RuntimeError(f"{op}: expected out on device {value.device}, got {out.device}")
    if not ts.can_cast(value.dtype, out.dtype):
        raise RuntimeError(f"{op}: result type {value.dtype} can't be cast to the desired output type {out.dtype}")
    if ts.is_grad_enabled() and (value.requires_grad or out.requires_grad):
        raise RuntimeError(f"{op}: functions with out=... arguments don't support automatic differentiation, but one "
                           "of the arguments requires grad")  # fmt: skip
    return refilled(op, value, out)


def refilled(op: str, value: Tensor, out: Tensor) -> Tensor:
    """``out`` resized to the shape of ``value``, with a warning if it had elements, and filled with it."""
    if out.shape != value.shape:
        if out.numel():
            warnings.warn(f"{op}: An output with one or more elements was resized since it had shape "
                          f"{list(out.shape)}, which does not match the required output shape {list(value.shape)}; "
                          "pass an out= of that shape or of no elements", stacklevel=3)  # fmt: skip
        out.resize_(value.shape)
    return out.copy_(value)
