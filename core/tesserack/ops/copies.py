"""Views copied into new tensors under PyTorch's ``_copy`` names, and splits under its ``unsafe_`` names.

>>> import tesserack as ts
>>> x = ts.zeros(2, 3)
>>> ts.transpose_copy(x, 0, 1).is_contiguous()
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd.function import Function
from tesserack.ops.results import refilled

__all__ = [
    "alias_copy",
    "as_strided_copy",
    "as_strided_scatter",
    "detach_copy",
    "diagonal_copy",
    "expand_copy",
    "narrow_copy",
    "permute_copy",
    "select_copy",
    "slice_copy",
    "split_copy",
    "split_with_sizes_copy",
    "squeeze_copy",
    "t_copy",
    "transpose_copy",
    "unbind_copy",
    "unfold_copy",
    "unsafe_chunk",
    "unsafe_split",
    "unsafe_split_with_sizes",
    "unsqueeze_copy",
    "view_as_complex_copy",
    "view_as_real_copy",
    "view_copy",
]


def _copied(name: str, view: Callable[..., Any]) -> Callable[..., Any]:
    """``view``, its result in memory of its own, laid out in rows."""

    def copy(self: Tensor, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        made = view(self, *args, **kwargs)
        for target in [] if out is None else [out] if isinstance(out, Tensor) else out:
            if target.dtype is not self.dtype and not name.startswith("view_as"):
                raise RuntimeError(f"{name}: Expected out tensor to have dtype {self.dtype}, but got {target.dtype}")
        if isinstance(made, Tensor):
            if out is not None:
                return refilled(name, made, out)
            return made.clone(memory_format=ts.contiguous_format)
        if out is not None:
            for target, part in zip(out, made, strict=True):
                refilled(name, part, target)
            return None
        return tuple(part.clone(memory_format=ts.contiguous_format) for part in made)

    copy.__name__ = copy.__qualname__ = name
    copy.__doc__ = f"What ``{name.removesuffix('_copy')}`` gives, in memory of its own."
    return copy


def _slice(self: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    index = [slice(None)] * self.dim()
    index[dim] = slice(start, end, step)
    return self[tuple(index)]


alias_copy = _copied("alias_copy", lambda self: self)
as_strided_copy = _copied("as_strided_copy", Tensor.as_strided)
detach_copy = _copied("detach_copy", Tensor.detach)
diagonal_copy = _copied("diagonal_copy", Tensor.diagonal)
expand_copy = _copied("expand_copy", lambda self, size, *, implicit=False: self.expand(size))
narrow_copy = _copied("narrow_copy", Tensor.narrow)
permute_copy = _copied("permute_copy", Tensor.permute)
select_copy = _copied("select_copy", Tensor.select)
slice_copy = _copied("slice_copy", _slice)
split_copy = _copied("split_copy", Tensor.split)
split_with_sizes_copy = _copied("split_with_sizes_copy", Tensor.split)
squeeze_copy = _copied("squeeze_copy", Tensor.squeeze)
t_copy = _copied("t_copy", Tensor.t)
transpose_copy = _copied("transpose_copy", Tensor.transpose)
unbind_copy = _copied("unbind_copy", Tensor.unbind)
unfold_copy = _copied("unfold_copy", Tensor.unfold)
unsqueeze_copy = _copied("unsqueeze_copy", Tensor.unsqueeze)
view_as_complex_copy = _copied("view_as_complex_copy", ts.view_as_complex)
view_as_real_copy = _copied("view_as_real_copy", ts.view_as_real)
view_copy = _copied("view_copy", Tensor.view)


class _Apart(Function):
    """Parts that share memory, each a result of its own: autograd does not see that what is written to one is written
    to ``x``, nor do they count writes together."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, sizes: list[int]) -> tuple[Tensor, ...]:
        ctx.dim = dim
        return tuple(part.data for part in x.split(sizes, dim))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return ts.cat(grads, ctx.dim), None, None


def _apart(x: Tensor, parts: Any, dim: int) -> tuple[Tensor, ...]:
    return _Apart.apply(x, dim, [part.shape[dim] for part in parts])  # type: ignore[no-any-return]


def unsafe_chunk(self: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """``chunk``; PyTorch's form for results of which one is written at a time."""
    return _apart(self, self.chunk(chunks, dim), dim)


def unsafe_split(self: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """``split``; PyTorch's form for results of which one is written at a time."""
    return _apart(self, self.split(split_size, dim), dim)


def unsafe_split_with_sizes(self: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """``split`` by sizes; PyTorch's form for results of which one is written at a time."""
    return _apart(self, self.split(split_sizes, dim), dim)


def as_strided_scatter(self: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A copy of ``self``, in rows, with ``src`` written at ``as_strided(size, stride, storage_offset)`` of it.

    ``RuntimeError`` unless ``src`` has that size.
    """
    made = self.clone(memory_format=ts.contiguous_format)
    place = made.as_strided(size, stride, storage_offset or 0)
    if src.shape != place.shape:
        raise RuntimeError(f"as_strided_scatter: expected src of shape {tuple(place.shape)}, got {tuple(src.shape)}")
    place.copy_(src)
    return made
