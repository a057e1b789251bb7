"""Methods of Tensor that PyTorch also has as functions: writing in place, and questions about a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tesserack import Tensor
from tesserack.ops.results import deliver

__all__ = [
    "as_strided_",
    "detach_",
    "fill",
    "fill_",
    "get_device",
    "index_put_",
    "is_distributed",
    "is_same_size",
    "is_signed",
    "is_storage",
    "resize_as_",
    "slice_inverse",
    "zero_",
]


def fill(input: Tensor, value: Any, *, out: Tensor | None = None) -> Tensor:
    """A tensor like ``input`` with every element ``value``, a number or a tensor of no dimension.

    >>> import tesserack as ts
    >>> ts.fill(ts.zeros(2), 3.0)
    tensor([3., 3.])
    """
    return deliver("fill", fill_(input.clone(), value), out)


def fill_(input: Tensor, value: Any) -> Tensor:
    """Set every element to ``value``, in place; ``RuntimeError`` for a tensor that is no single number."""
    if isinstance(value, Tensor) and value.dim():
        raise RuntimeError(
            f"fill_ only supports 0-dimension value tensor but got tensor with {value.dim()} dimensions."
        )
    return input.fill_(value)


def zero_(input: Tensor) -> Tensor:
    """Set every element to 0, in place."""
    return input.zero_()


def detach_(input: Tensor) -> Tensor:
    """Take the tensor out of the graph, in place."""
    return input.detach_()


def as_strided_(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Give the tensor another shape, strides and first element of its memory, in place."""
    return input.as_strided_(size, stride, storage_offset)


def index_put_(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """Write ``values`` at ``indices``, in place, added to what is there with ``accumulate``."""
    return input.index_put_(indices, values, accumulate)


def resize_as_(input: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """``resize_`` to the shape of another tensor, and to its memory format where that is ``preserve_format``."""
    return input.resize_as_(the_template, memory_format)


def slice_inverse(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """The whole tensor, of the shape of ``src``, of whose memory ``input`` is the slice along ``dim``."""
    first = 0 if start is None else start + src.shape[dim] if start < 0 else start
    offset = input.storage_offset() - first * src.stride(dim)
    return input.as_strided(src.shape, src.stride(), offset)


def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.is_signed()


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape."""
    return input.shape == other.shape


def is_distributed(input: Tensor) -> bool:
    """Always False: no tensor is spread over processes."""
    return False


def is_storage(obj: Any, /) -> bool:
    """Whether ``obj`` is the storage of a tensor."""
    from tesserack.storage import TypedStorage, UntypedStorage

    return isinstance(obj, (TypedStorage, UntypedStorage))


def get_device(input: Tensor) -> int:
    """The index of the device, -1 for host memory."""
    device = input.device
    return -1 if device.type == "cpu" else device.index or 0
