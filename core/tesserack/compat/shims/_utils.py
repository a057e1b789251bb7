"""``torch._utils``: lists of tensors as one, and tensors from the parts that a pickle holds."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.compat.shims import accelerator
from tesserack.jit.compiler import is_compiling
from tesserack.nn.parameter import Parameter

__all__ = ["ExceptionWrapper", "is_compiling"]


class ExceptionWrapper:
    """An exception with its traceback as text, to be raised again in another thread or process.

    >>> try:
    ...     raise KeyError("k")
    ... except KeyError:
    ...     wrapper = ExceptionWrapper(where="in a worker")
    >>> try:
    ...     wrapper.reraise()
    ... except KeyError as error:
    ...     "in a worker" in str(error), "KeyError: 'k'" in str(error)
    (True, True)
    """

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, error, trace = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: Any = kind
        self.exc_msg = "".join(traceback.format_exception(kind, error, trace))
        self.where = where

    def reraise(self) -> None:
        """Raise one of that class with the traceback as its message; ``RuntimeError`` if the class takes none."""
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            message = _Plain(message)
        try:
            raised = self.exc_type(message)
        except Exception:
            raise RuntimeError(message) from None
        raise raised


class _Plain(str):
    """A message that KeyError shows as it is."""

    def __repr__(self) -> str:
        return str(self)


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements in one dim, tensor after tensor."""
    return ts.cat([t.contiguous().view(-1) for t in tensors]) if tensors else ts.empty(0)


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of ``flat`` with the shapes of ``tensors``."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple(part.view(t.shape) for part, t in zip(parts, tensors, strict=True))


def _reorder_tensors_as(tensors: Sequence[Tensor], ordered_tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Tensors sorted by type as :func:`_take_tensors` does, in the order of others again."""
    by_type: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        by_type.setdefault(tensor.type(), []).append(tensor)
    queues = {kind: iter(found) for kind, found in by_type.items()}
    return tuple(next(queues[tensor.type()]) for tensor in ordered_tensors)


def _take_tensors(tensors: Sequence[Tensor], size_limit: int) -> Any:
    """Lists of tensors of one type, of about ``size_limit`` bytes each."""
    pending: dict[str, tuple[list[Tensor], int]] = {}
    for tensor in tensors:
        kind, size = tensor.type(), tensor.numel() * tensor.element_size()
        chunk, total = pending.get(kind, ([], 0))
        if chunk and total + size > size_limit:
            yield chunk
            chunk, total = [], 0
        pending[kind] = ([*chunk, tensor], total + size)
    for chunk, _ in pending.values():
        if chunk:
            yield chunk


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of a device, name or number; -1 for the cpu where that is allowed. ``ValueError`` for others."""
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    if device is None:
        if optional:
            return 0
        raise ValueError("Expected a torch.device with a specified index or an integer, but got: None")
    found = ts.device(device)
    if found.type == "cpu":
        if allow_cpu:
            return -1
        raise ValueError(f"Expected a non cpu device, but got: {device}")
    return found.index or 0


def _get_available_device_type() -> str | None:
    """The type of the card that a program would choose; None where there is none."""
    card = accelerator.current_accelerator()
    return None if card is None else card.type


def _get_device_module(device_type: str) -> Any:
    """``torch.<device_type>``; ``RuntimeError`` where there is none."""
    with contextlib.suppress(ImportError):
        return importlib.import_module(f"tesserack.compat.shims.{device_type}")
    try:
        return ts.get_device_module(device_type)
    except Exception as error:
        raise RuntimeError(
            f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'."
        ) from error


def _element_size(dtype: Any) -> int:
    """Bytes of an element."""
    return dtype.itemsize  # type: ignore[no-any-return]


def _import_dotted_name(name: str) -> Any:
    """What a dotted name stands for."""
    first, *rest = name.split(".")
    found: Any = importlib.import_module(first)
    for part in rest:
        found = getattr(found, part)
    return found


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """A tensor over a storage."""
    tensor: Any = ts.empty(0, dtype=storage.dtype, device=storage.device)
    return tensor.set_(storage, storage_offset, size, stride)  # type: ignore[no-any-return]


def _rebuild_tensor_v2(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Tensor:
    """:func:`_rebuild_tensor` that requires gradients, or not."""
    tensor = _rebuild_tensor(storage, storage_offset, size, stride)
    tensor.requires_grad = requires_grad
    return tensor


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Parameter:
    """A parameter over a tensor."""
    return Parameter(data, requires_grad)


def _load_from_bytes(b: bytes) -> Any:
    """A storage, as pickles of PyTorch's tensors hold it: a file of ``torch.save`` in its older format."""
    from tesserack import serialization

    return serialization.load(io.BytesIO(b)).elements.storage()
