"""Tensors made from a range, a layout or a file, and handed out as DLPack capsules."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.ops.results import deliver, strided_only

__all__ = ["empty_permuted", "from_file", "range", "to_dlpack"]


def range(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """The numbers from ``start`` to ``end``, which is one of them if a whole number of steps away; prefer ``arange``.

    Of the default dtype unless told. ``RuntimeError`` for a step that leads away from ``end``.

    >>> import tesserack as ts
    >>> ts.range(1, 4)
    tensor([1., 2., 3., 4.])
    """
    strided_only("range", layout)
    warnings.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
        "Python's range builtin. Instead, use torch.arange, which produces values in [start, end).",
        stacklevel=2,
    )
    if end is None:
        start, end = 0, start
    if step == 0:
        raise RuntimeError("range: step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"range: unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RuntimeError(
            f"range: upper bound and lower bound inconsistent with step sign, got {start}, {end}, {step}"
        )
    count = math.floor((end - start) / step) + 1
    kind = dtype or (out.dtype if out is not None else ts.get_default_dtype())
    place = out.device if out is not None and device is None else device
    wide = kind if kind is ts.float64 or not kind.is_floating_point else ts.float64
    made = (ts.arange(count, dtype=wide, device=place) * step + start).to(kind)
    if out is not None and out.numel() == count:
        made = made.reshape(out.shape)  # filled in order
    return deliver("range", made, out) if out is not None else made.requires_grad_(requires_grad)


def empty_permuted(
    size: Sequence[int],
    physical_layout: Sequence[int],
    *,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Memory not set, dense, with the dims lying in the order ``physical_layout``, the outermost first.

    >>> import tesserack as ts
    >>> ts.empty_permuted((2, 3, 5), (0, 2, 1)).stride()
    (15, 1, 3)
    """
    strided_only("empty_permuted", layout)
    size, order = tuple(size), tuple(physical_layout)
    if len(order) != len(size):
        raise RuntimeError(f"empty_permuted: Number of dimensions in size does not match the length of the "
                           f"physical_layout; i.e. len(size) = {len(size)} is not equal to len(physical_layout) = "
                           f"{len(order)}")  # fmt: skip
    if any(not 0 <= d < len(size) for d in order):
        raise RuntimeError(f"empty_permuted: Dimension out of range (expected to be between 0 and {len(size) - 1}), "
                           f"got {order}")  # fmt: skip
    if len(set(order)) < len(order):
        raise RuntimeError(f"empty_permuted: Duplicate dim not allowed, got {order}")
    made = ts.empty([size[d] for d in order], dtype=dtype, device=device, requires_grad=requires_grad)
    return made.permute([order.index(d) for d in _upto(len(order))]) if order else made


def _upto(count: int) -> Any:
    import builtins

    return builtins.range(count)  # the function of this module has that name


def from_file(
    filename: str | os.PathLike[str],
    shared: bool | None = None,
    size: int | None = 0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """The first ``size`` numbers of a binary file, mapped into memory.

    With ``shared`` what is written to the tensor is written to the file, which is made, or made long enough. Else
    writing stays in memory. ``RuntimeError`` for a file that is too short.
    """
    import mmap

    strided_only("from_file", layout)
    kind = dtype or ts.get_default_dtype()
    count = size or 0
    needed = count * kind.itemsize
    if not needed:
        return ts.empty(0, dtype=kind, device=device)
    with open(filename, "r+b" if shared and os.path.exists(filename) else "w+b" if shared else "rb") as file:
        length = os.fstat(file.fileno()).st_size
        if length < needed and not shared:
            raise RuntimeError(f"from_file: expected {needed} bytes, got a file {os.fspath(filename)!r} of {length}")
        if length < needed:
            file.truncate(needed)
        mapped = mmap.mmap(file.fileno(), needed, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)
    made = ts.frombuffer(mapped, dtype=kind, count=count)
    return made if device is None else made.to(device)


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule over the memory of the tensor, for ``from_dlpack`` of any library."""
    return tensor.__dlpack__()
