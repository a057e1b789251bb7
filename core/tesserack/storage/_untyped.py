"""The bytes behind tensors."""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from tesserack import _native
from tesserack._native import Tensor, dtype
from tesserack._tensor.functions import frombuffer
from tesserack._tensor.pending import physical

__all__ = ["UntypedStorage", "copied_memory", "refuse_meta", "storage_of"]

# By the core's address of the memory's record, which each of them keeps alive.
_live: weakref.WeakValueDictionary[int, UntypedStorage] = weakref.WeakValueDictionary()


def storage_of(tensor: Tensor) -> UntypedStorage:
    """The storage of a tensor: one object for all tensors of the memory as long as somebody holds it."""
    identity = tensor._storage_id()
    found = _live.get(identity) if identity else None
    if found is None:
        found = UntypedStorage(tensor.detach())
        if identity:
            _live[identity] = found
    return found


def refuse_meta(storage: Any, message: str) -> None:
    """``NotImplementedError`` where there is no data to read."""
    if storage.device.type == "meta":
        raise NotImplementedError(message)


def copied_memory(owner: Tensor, memo: dict[Any, Any]) -> Tensor:
    """A copy of all the bytes behind a tensor: one for all tensors of the memory, by the memo of deepcopy."""
    storage = UntypedStorage(owner.detach())
    key = ("tesserack.storage", str(storage.device), storage.data_ptr())
    if key not in memo:
        memo[key] = storage._whole(_native.uint8).clone()
    return memo[key]  # type: ignore[no-any-return]


class UntypedStorage:
    """The bytes behind a tensor: to compare storages, ask their size, and read or write single bytes. A number makes
    a new one of so many, a sequence one of these.

    >>> import tesserack as ts
    >>> storage = ts.tensor([1, 2], dtype=ts.int16).untyped_storage()
    >>> len(storage), storage[0], storage.tolist()
    (4, 1, [1, 0, 2, 0])
    """

    is_sparse = is_sparse_csr = False
    filename: str | None = None  # of the file that it was made from, by from_file

    def __init__(self, owner: Any = 0, *, device: Any = None) -> None:
        if isinstance(owner, str) or not isinstance(owner, (Tensor, int, Sequence)):
            raise RuntimeError(f"UntypedStorage: expected a number of bytes or a sequence of bytes, got {owner!r}")
        if isinstance(owner, int) and owner < 0:
            raise RuntimeError(f"UntypedStorage: expected a number of bytes that is not negative, got {owner}")
        if not isinstance(owner, Tensor):
            data = bytearray(max(owner, 1)) if isinstance(owner, int) else bytearray(owner) or bytearray(1)
            count = owner if isinstance(owner, int) else len(owner)
            owner = frombuffer(data, dtype=_native.uint8)[:count].clone()
        self._owner: Tensor = physical(owner if device is None else owner.to(device))
        self._part: range | None = None  # of the owner's memory; all of it if None
        self.device: _native.device = self._owner.device

    @property
    def _cdata(self) -> int:  # what programs compare to see whether two are the same memory
        return self._owner._storage_ptr() if self.is_shared() else self._owner._storage_id()

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
        storage = cls(frombuffer(mapped, dtype=_native.uint8))
        storage.filename = os.fspath(filename)
        return storage

    @classmethod
    def from_buffer(
        cls,
        buffer: Any,
        byte_order: str | None = None,
        count: int = -1,
        offset: int = 0,
        *,
        dtype: dtype = _native.uint8,
    ) -> UntypedStorage:
        """A copy of ``count`` numbers (all, if negative) of a buffer, from byte ``offset`` on. Those of several bytes
        are in the order ``"native"``, ``"little"`` or ``"big"``, and in this machine's afterwards.

        Raises ``ValueError`` for another order, an offset outside, fewer numbers than are asked for or a rest.

        >>> UntypedStorage.from_buffer(b"ab").tolist()
        [97, 98]
        """
        item = dtype.itemsize
        if byte_order is None and item > 1:
            raise RuntimeError(f"from_buffer: missing required argument 'byte_order' for numbers of {dtype}")
        if byte_order not in (None, "native", "little", "big"):
            raise ValueError(f"from_buffer: expected the byte order 'native', 'little' or 'big', got {byte_order!r}")
        view = memoryview(buffer).cast("B")
        if not 0 <= offset <= len(view):
            raise ValueError(f"from_buffer: offset must be from 0 to {len(view)}, got {offset}")
        view = view[offset:]
        if count < 0 and len(view) % item:
            raise ValueError(f"from_buffer: buffer size ({len(view)}) must be a multiple of element size ({item})")
        if count * item > len(view):
            raise ValueError(f"from_buffer: buffer has {len(view) // item} elements after the offset, not {count}")
        data = bytearray(view if count < 0 else view[: count * item])
        if byte_order not in (None, "native", sys.byteorder):
            size = item // 2 if dtype.is_complex else item
            turned = bytearray(len(data))
            for k in range(size):
                turned[k::size] = data[size - 1 - k :: size]
            data = turned
        if dtype is _native.bool:
            data = bytearray(map(bool, data))
        return cls(data)

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

    def _storage_numbers(self, dtype: dtype | None) -> Tensor:
        """What ``tensor()`` makes of it: its bytes as numbers of the dtype that is asked for."""
        return self._whole(dtype or _native.get_default_dtype())

    def __getitem__(self, index: int | slice) -> Any:
        """A byte; of a slice of step 1, a storage of these bytes, in the same memory."""
        refuse_meta(self, "Not available for 'meta' device type")
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
        refuse_meta(self, "Not available for 'meta' device type")
        return self._whole(_native.uint8).tolist()  # type: ignore[no-any-return]

    def fill_(self, value: int) -> UntypedStorage:
        """Write one byte everywhere."""
        self._whole(_native.uint8).fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> UntypedStorage:
        """Write the bytes of another storage of the same size."""
        refuse_meta(source, "Cannot copy out of meta tensor; no data!")
        if source.nbytes() != self.nbytes():
            raise RuntimeError(f"copy_: expected a storage of {self.nbytes()} bytes, got one of {source.nbytes()}")
        self._whole(_native.uint8).copy_(source.untyped()._whole(_native.uint8))
        return self

    def clone(self) -> UntypedStorage:
        """The same bytes in memory of their own."""
        return UntypedStorage(self._whole(_native.uint8).clone())

    def to(self, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
        """On another device; itself if it is there."""
        moved = self._whole(_native.uint8).to(device)
        return self if moved.device == self.device else UntypedStorage(moved)

    def cpu(self) -> UntypedStorage:
        """On the host; itself if it is there."""
        refuse_meta(self, "Cannot copy out of meta tensor; no data!")
        return self.to(device="cpu")

    def resize_(self, size: int) -> UntypedStorage:
        """Make it of ``size`` bytes, for all tensors of the memory; what it had stays in front."""
        if size < 0:
            raise RuntimeError(f"resize_: expected a size of at least 0, got {size}")
        if self._owner.is_meta:
            self._part = range(size)
            return self
        whole = self._owner._storage_nbytes()
        start = self._part.start if self._part else 0
        if start + size <= whole:
            self._part = range(start, start + size)
        elif start:
            raise RuntimeError(
                f"resize_: expected at most the {whole - start} bytes of which this is a slice, got {size}"
            )
        else:
            self._owner._resize_storage(size)
            self._part = None
        return self

    def resizable(self) -> bool:
        """Whether :meth:`resize_` may make it longer: not over a file, nor for a slice."""
        return self.filename is None and not (self._part and self._part.start)

    def byteswap(self, dtype: dtype) -> None:
        """Turn the bytes of every number around, in place; of complex ones those of each part.

        ``RuntimeError`` where the bytes are no whole number of them, and without data.
        """
        if not isinstance(dtype, _native.dtype):
            raise TypeError(f"byteswap: expected a dtype, got {type(dtype).__name__}")
        refuse_meta(self, "byteswap: Cannot write to a meta tensor; no data!")
        if self.nbytes() % dtype.itemsize:
            raise RuntimeError(f"byteswap: the length of data, {self.nbytes()}, is not a multiple of {dtype.itemsize}")
        width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
        if width > 1:
            rows = self._whole(_native.uint8).view(-1, width)
            rows.copy_(rows.flip(1))

    def __getattr__(self, name: str) -> bool:
        # Whether it is on a device of some kind: as its tensor says.
        if name.startswith("is_"):
            return bool(getattr(self._owner, name))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def get_device(self) -> int:
        """The index of the device, -1 for the host."""
        return self._owner.get_device()

    def is_shared(self) -> bool:
        """Whether other processes see the same memory."""
        return bool(self._owner.is_shared())

    def share_memory_(self) -> UntypedStorage:
        """Move to memory that other processes can map."""
        if self.device.type != "cpu":
            raise RuntimeError(f"share_memory_: only available on CPU, got a storage on {self.device}")
        self._owner.share_memory_()
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the memory is locked for transfers."""
        return self._owner.is_pinned()

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[Any, Any]) -> UntypedStorage:
        found = UntypedStorage(copied_memory(self._owner, memo))
        found._part = self._part
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return UntypedStorage, (self.tolist(),)

    def __repr__(self) -> str:
        if self.device.type == "meta":
            return f"...\n[{_TORCH}UntypedStorage(device={self.device}) of size {len(self)}]"
        lines = "".join(f" {byte}\n" for byte in self.tolist())
        return f"{lines}[{_TORCH}UntypedStorage(device={self.device}) of size {len(self)}]"


_TORCH = "tesserack.storage."
