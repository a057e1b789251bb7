"""Storages: the memory behind tensors, in bytes or in numbers of a dtype."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from tesserack import _native
from tesserack._native import Tensor, dtype

__all__ = ["TypedStorage", "UntypedStorage"]


class UntypedStorage:
    """The bytes behind a tensor: to compare storages, ask their size, and read or write single bytes.

    >>> import tesserack as ts
    >>> storage = ts.tensor([1, 2], dtype=ts.int16).untyped_storage()
    >>> len(storage), storage[0], storage.tolist()
    (4, 1, [1, 0, 2, 0])
    """

    def __init__(self, owner: Tensor) -> None:
        self._owner = owner
        self.device = owner.device

    def data_ptr(self) -> int:
        """The address of the first byte; 0 for one without data."""
        return 0 if self._owner.is_meta else self._owner._storage_ptr()

    def nbytes(self) -> int:
        """The number of bytes; of one without data, those that its tensor would take."""
        if not self._owner.is_meta:
            return self._owner._storage_nbytes()
        shape, strides = self._owner.shape, self._owner.stride()
        last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + self._owner.storage_offset()
        return (last + 1) * self._owner.element_size() if self._owner.numel() else 0

    size = __len__ = nbytes

    def element_size(self) -> int:
        """Always 1."""
        return 1

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UntypedStorage):
            return NotImplemented
        return self.data_ptr() == other.data_ptr() and self.device == other.device

    def __hash__(self) -> int:
        return hash(self.data_ptr())

    def _whole(self, dtype: dtype) -> Tensor:
        """All of the memory as one line of numbers."""
        count = self.nbytes() // self._owner.element_size()
        return self._owner.detach().as_strided((count,), (1,), 0).view(dtype)

    def __getitem__(self, index: int | slice) -> Any:
        """A byte; of a slice, a storage with copies of the bytes."""
        found = self._whole(_native.uint8)[index]
        return UntypedStorage(found.clone()) if isinstance(index, slice) else found.item()

    def __setitem__(self, index: int | slice, value: int) -> None:
        self._whole(_native.uint8)[index] = value

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def tolist(self) -> list[int]:
        """The bytes as integers."""
        return self._whole(_native.uint8).tolist()  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(device={self.device}) of size {len(self)}"


class TypedStorage:
    """The memory behind a tensor as numbers of its dtype.

    >>> import tesserack as ts
    >>> storage = ts.tensor([[1.0, 2.0], [3.0, 4.0]]).t().storage()
    >>> len(storage), storage[1], storage.dtype
    (4, 2.0, tesserack.float32)
    """

    def __init__(self, owner: Tensor) -> None:
        self._untyped = UntypedStorage(owner)
        self.dtype, self.device = owner.dtype, owner.device

    def untyped(self) -> UntypedStorage:
        """The same memory in bytes."""
        return self._untyped

    def data_ptr(self) -> int:
        """The address of the first number; 0 for one without data."""
        return self._untyped.data_ptr()

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._untyped.nbytes()

    def element_size(self) -> int:
        """Bytes of one number."""
        return self._untyped._owner.element_size()

    def size(self) -> int:
        """The number of numbers."""
        return self.nbytes() // self.element_size()

    __len__ = size

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + sys.getsizeof(self._untyped)

    def _numbers(self) -> Tensor:
        return self._untyped._whole(self.dtype)

    def __getitem__(self, index: int | slice) -> Any:
        found = self._numbers()[index]
        return TypedStorage(found.clone()) if isinstance(index, slice) else found.item()

    def __setitem__(self, index: int | slice, value: Any) -> None:
        self._numbers()[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and self._untyped == other._untyped and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash(self._untyped)

    def tolist(self) -> list[Any]:
        """The numbers as Python's."""
        return self._numbers().tolist()  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dtype={self.dtype}, device={self.device}) of size {len(self)}"
