"""Storages: the memory behind tensors, in bytes or in numbers of a dtype."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterator
from typing import Any

from tesserack import _native
from tesserack._functions import frombuffer
from tesserack._native import Tensor, dtype

__all__ = ["TypedStorage", "UntypedStorage"]


class UntypedStorage:
    """The bytes behind a tensor: to compare storages, ask their size, and read or write single bytes. A number makes
    a new one of so many.

    >>> import tesserack as ts
    >>> storage = ts.tensor([1, 2], dtype=ts.int16).untyped_storage()
    >>> len(storage), storage[0], storage.tolist()
    (4, 1, [1, 0, 2, 0])
    """

    def __init__(self, owner: Tensor | int) -> None:
        if isinstance(owner, int):
            owner = frombuffer(bytearray(max(owner, 1)), dtype=_native.uint8)[:owner].clone()
        self._owner = owner
        self._part: range | None = None  # of the owner's memory; all of it if None
        self.device = owner.device

    @classmethod
    def from_file(cls, filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first bytes of a file, read when they are touched; ``shared`` writes changes to the file, and makes it
        as long as it takes.

        Raises ``OSError`` for a file that cannot be opened, and ``ValueError`` if it is shorter and not ``shared``.
        """
        with open(filename, "r+b" if shared else "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < nbytes and not shared:
                raise ValueError(f"from_file: {os.fspath(filename)} has {size} bytes, expected at least {nbytes}")
            if size < nbytes:
                file.truncate(nbytes)
            if not nbytes:
                return cls(0)
            mapped = mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)
        return cls(frombuffer(mapped, dtype=_native.uint8))

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    def data_ptr(self) -> int:
        """The address of the first byte; 0 for one without data."""
        start = self._part.start if self._part else 0
        return 0 if self._owner.is_meta else self._owner._storage_ptr() + start

    def nbytes(self) -> int:
        """The number of bytes; of one without data, those that its tensor would take."""
        if self._part is not None:
            return len(self._part)
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
        if self._part is not None:
            whole = UntypedStorage(self._owner)._whole(_native.uint8)
            return whole[self._part.start : self._part.stop].view(dtype)
        count = self.nbytes() // self._owner.element_size()
        return self._owner.detach().as_strided((count,), (1,), 0).view(dtype)

    def __getitem__(self, index: int | slice) -> Any:
        """A byte; of a slice of step 1, a storage of these bytes, in the same memory."""
        if not isinstance(index, slice):
            return self._whole(_native.uint8)[index].item()
        part = range(*index.indices(self.nbytes()))
        if part.step != 1:
            raise TypeError(f"storage: expected a slice of step 1, got {part.step}")
        found = UntypedStorage(self._owner)
        base = self._part.start if self._part else 0
        found._part = range(base + part.start, base + max(part.start, part.stop))
        return found

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
