"""Factory functions told a ``layout``: the empty sparse tensors PyTorch makes, and its refusals of all others."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.sparse._dispatch import layout_name
from tesserack.sparse._parts import make

__all__ = ["make_with_layout"]

_EMPTY = ("zeros", "empty", "new_zeros", "new_empty", "zeros_like", "empty_like")
_COMPRESSED = {ts.sparse_csr: -2, ts.sparse_csc: -1}  # the dim whose elements the first indices count


def _without_elements(op: str, layout: Any, size: tuple[int, ...], dtype: Any, device: Any) -> Tensor:
    if layout is ts.sparse_coo:
        indices = ts.zeros((len(size), 0), dtype=ts.int64, device=device)
        return make(layout, (indices,), ts.zeros(0, dtype=dtype, device=device), size, 0, True)
    if layout not in _COMPRESSED:
        raise RuntimeError(f"{op}: expected a sparse compressed (non-block) tensor layout but got {layout}; make one "
                           "by ts.sparse_compressed_tensor")  # fmt: skip
    if len(size) < 2:
        raise RuntimeError(f"{op}: expected two dims or more for the layout {layout}, got size {list(size)}")
    batch = size[:-2]
    counts = ts.zeros((*batch, size[_COMPRESSED[layout]] + 1), dtype=ts.int64, device=device)
    places = ts.zeros((*batch, 0), dtype=ts.int64, device=device)
    return make(layout, (counts, places), ts.zeros((*batch, 0), dtype=dtype, device=device), size, 0, True)


def _dense_form(self: Tensor) -> Tensor:
    """What stands for a tensor where only its sizes and dtype count."""
    return ts.empty(self.shape, dtype=self.dtype, device="meta")


def _refuse(name: str, layout: Any) -> Exception:
    if name in ("ones", "full"):
        return RuntimeError(
            f"{name}: is not implemented for sparse layout, got {layout}; try ts.{name}(...).to_sparse()"
        )
    return NotImplementedError(
        f"{name}: not implemented for tensors of layout {layout}; make a dense tensor and convert it, .to_sparse()"
    )


def make_with_layout(op: Any, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
    """The tensor of a factory call with ``layout=``, whose other arguments are checked by the operator itself."""
    options = dict(options)
    layout = options.pop("layout")
    if name == "scalar_tensor":  # takes any, and makes a dense one
        return op(*args, **options)  # type: ignore[no-any-return]
    if (out := options.get("out")) is not None:
        if layout is not out.layout:
            raise RuntimeError(f"{name}: layout {layout} does not match the layout of out, {out.layout}")
        return op(*args, **options)  # type: ignore[no-any-return]
    options.pop("out", None)
    self = args[0] if args and isinstance(args[0], Tensor) else options.pop("input", None)
    likeness = self is not None and self.layout is not ts.strided and name.endswith("_like")
    if likeness and layout is self.layout:
        return op(*args, **options)  # type: ignore[no-any-return]
    if likeness and name == "empty_like" and self.layout is not ts.sparse_coo:
        raise RuntimeError(
            f"{name}: expected the layout {layout_name(self)}, as self, got {layout}; convert the result"
        )
    if layout is ts.strided:  # of a sparse self
        if self.layout is not ts.sparse_coo and name.endswith("_like"):
            raise RuntimeError(
                f"{name}: expected the layout {layout_name(self)}, as self, got {layout}; try .to_dense()"
            )
        options.setdefault("device", self.device)
        return op(_dense_form(self), *args[1:], **options)  # type: ignore[no-any-return]
    if name not in _EMPTY or (name == "empty_like" and not likeness):
        raise _refuse(name, layout)
    device = options.pop("device", None)
    if self is not None:
        device = device or self.device
        args = (_dense_form(self), *args[1:])
    outline = op(*args, **options, device="meta")
    made = _without_elements(name, layout, tuple(outline.shape), outline.dtype, device)
    return made.requires_grad_(outline.requires_grad)
