"""The memory behind tensors as numbers of a dtype, and the classes of one dtype each that older programs name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import tesserack as ts
from tesserack import _native
from tesserack._native import Tensor, dtype
from tesserack.storage._untyped import UntypedStorage, refuse_meta, storage_of

__all__ = [
    "LEGACY",
    "BFloat16Storage",
    "BoolStorage",
    "ByteStorage",
    "CharStorage",
    "ComplexDoubleStorage",
    "ComplexFloatStorage",
    "DoubleStorage",
    "FloatStorage",
    "HalfStorage",
    "IntStorage",
    "LongStorage",
    "ShortStorage",
    "Storage",
    "TypedStorage",
    "class_for",
]


class TypedStorage:
    """The memory behind a tensor as numbers of its dtype.

    Made by ``tensor.storage()``, of a number of elements or a sequence of them with ``dtype`` and ``device``, or over
    an ``UntypedStorage`` by ``wrap_storage``. Raises ``RuntimeError`` for any other combination.

    >>> import tesserack as ts
    >>> storage = ts.tensor([[1.0, 2.0], [3.0, 4.0]]).t().storage()
    >>> len(storage), storage[1], storage.dtype
    (4, 2.0, tesserack.float32)
    """

    is_sparse = False

    def __init__(
        self,
        *args: Any,
        wrap_storage: UntypedStorage | None = None,
        dtype: dtype | None = None,
        device: Any = None,
    ) -> None:
        wrapped = wrap_storage is not None and (args or device is not None or dtype is None)
        if len(args) > 1 or wrapped or (args and isinstance(args[0], str)):
            raise RuntimeError("TypedStorage: expected a number of elements or a sequence of them with dtype= and "
                               f"device=, or wrap_storage= and dtype=, got {len(args)} arguments, "
                               f"wrap_storage={wrap_storage!r}, dtype={dtype}, device={device}")  # fmt: skip
        if wrap_storage is not None:
            assert dtype is not None
            self._untyped, self.dtype = wrap_storage, dtype
        else:
            owner = self._made(args[0] if args else 0, dtype, device)
            self._untyped, self.dtype = storage_of(owner), owner.dtype

    @staticmethod
    def _made(source: Any, dtype: dtype | None, device: Any) -> Tensor:
        if isinstance(source, Tensor):
            return source
        dtype = dtype or ts.get_default_dtype()
        if isinstance(source, int):
            return ts.empty(source, dtype=dtype, device=device)
        return ts.tensor(list(source), dtype=dtype, device=device)

    @property
    def device(self) -> _native.device:
        """Where the numbers are."""
        return self._untyped.device

    def untyped(self) -> UntypedStorage:
        """The same memory in bytes."""
        return self._untyped

    _untyped_storage = property(untyped)

    @property
    def _cdata(self) -> int:
        return self._untyped._cdata

    def data_ptr(self) -> int:
        """The address of the first number; 0 for one without data."""
        return self._untyped.data_ptr()

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._untyped.nbytes()

    def element_size(self) -> int:
        """Bytes of one number."""
        return self.dtype.itemsize

    def size(self) -> int:
        """The number of numbers."""
        return self.nbytes() // self.element_size()

    __len__ = size

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + sys.getsizeof(self._untyped)

    def _numbers(self) -> Tensor:
        if self._untyped._part is None and self._untyped.nbytes() % self.element_size() == 0:
            return self._untyped._whole(self.dtype)
        return self._untyped._whole(_native.uint8)[: self.size() * self.element_size()].view(self.dtype)

    def _storage_numbers(self, dtype: dtype | None) -> Tensor:
        """What ``tensor()`` makes of it. ``RuntimeError`` for another dtype than its own."""
        if dtype not in (None, self.dtype):
            raise RuntimeError(
                f"tensor: Expected a Storage of type {dtype} or an UntypedStorage, but got a storage of {self.dtype}"
            )
        return self._numbers()

    def __getitem__(self, index: int | slice) -> Any:
        refuse_meta(self, "Not available for 'meta' device type")
        found = self._numbers()[index]
        return TypedStorage(found.clone()) if isinstance(index, slice) else found.item()

    def __setitem__(self, index: int | slice, value: Any) -> None:
        refuse_meta(self, "Not available for 'meta' device type")
        values = isinstance(value, (list, tuple))
        self._numbers()[index] = ts.tensor(value, dtype=self.dtype, device=self.device) if values else value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and self._untyped == other._untyped and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash(self._untyped)

    def tolist(self) -> list[Any]:
        """The numbers as Python's."""
        refuse_meta(self, "Not available for 'meta' device type")
        return self._numbers().tolist()  # type: ignore[no-any-return]

    def fill_(self, value: Any) -> TypedStorage:
        """Write one number everywhere."""
        self._numbers().fill_(value)
        return self

    def copy_(self, source: TypedStorage, non_blocking: bool | None = None) -> TypedStorage:
        """Write the bytes of another storage of as many; nothing is cast."""
        self._untyped.copy_(source)
        return self

    def resize_(self, size: int) -> None:
        """Make it of ``size`` numbers; see ``UntypedStorage.resize_``."""
        self._untyped.resize_(size * self.element_size())

    def resizable(self) -> bool:
        """Whether :meth:`resize_` may make it longer."""
        return self._untyped.resizable()

    @property
    def filename(self) -> str | None:
        """The file that it was made from, by ``from_file``; None for memory."""
        return self._untyped.filename

    def clone(self) -> TypedStorage:
        """The same numbers in memory of their own."""
        return TypedStorage(self._numbers().clone())

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        """On another device."""
        return TypedStorage(wrap_storage=self._untyped.to(device=device), dtype=self.dtype)

    def cpu(self) -> TypedStorage:
        """On the host."""
        return TypedStorage(wrap_storage=self._untyped.cpu(), dtype=self.dtype)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of its class; with a dtype, the numbers cast to it."""
        if dtype is None:
            package = str(self.dtype).rpartition(".")[0]
            return f"{package}.{class_for(self.dtype).__name__}"
        return TypedStorage(self._numbers().to(getattr(dtype, "dtype", dtype)))

    def __getattr__(self, name: str) -> bool:
        # Whether it is on a device of some kind: as its tensor says.
        if name.startswith("is_"):
            return bool(getattr(self._untyped, name))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def get_device(self) -> int:
        """The index of the device, -1 for the host."""
        return self._untyped.get_device()

    def is_shared(self) -> bool:
        """Whether other processes see the same memory."""
        return self._untyped.is_shared()

    def share_memory_(self) -> TypedStorage:
        """Move to memory that other processes can map."""
        self._untyped.share_memory_()
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the memory is locked for transfers."""
        return self._untyped.is_pinned(device)

    def pickle_storage_type(self) -> str:
        """The name under which files keep storages of this dtype."""
        return str(class_for(self.dtype).__name__)

    def __copy__(self) -> TypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[Any, Any]) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped.__deepcopy__(memo), dtype=self.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self._untyped, str(self.dtype).rpartition(".")[2])

    def __repr__(self) -> str:
        end = f"[tesserack.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {len(self)}]"
        return "...\n" + end if self.device.type == "meta" else "".join(f" {x}\n" for x in self.tolist()) + end


def _rebuilt(untyped: UntypedStorage, name: str) -> TypedStorage:
    return TypedStorage(wrap_storage=untyped, dtype=getattr(ts, name))


def _cast(name: str, dtype: dtype) -> None:
    def method(self: TypedStorage) -> TypedStorage:
        return TypedStorage(self._numbers().to(dtype))

    method.__name__, method.__doc__ = name, f"The numbers as {str(dtype).rpartition('.')[2]}."
    setattr(TypedStorage, name, method)


class _Legacy(type):
    """Classes that make, and recognise, typed storages of one dtype."""

    dtype: dtype

    def __call__(cls, *args: Any, device: Any = None, **other: Any) -> TypedStorage:
        if other or len(args) > 1:
            raise RuntimeError(f"{cls.__name__}: expected a number of elements or a sequence of them, got {len(args)} "
                               f"arguments and {sorted(other)}; the dtype is {cls.dtype}")  # fmt: skip
        return TypedStorage(*args, dtype=cls.dtype, device=device)

    def from_buffer(cls, *args: Any, **kwargs: Any) -> TypedStorage:
        """A storage of the numbers in a buffer: see :meth:`UntypedStorage.from_buffer`."""
        made = UntypedStorage.from_buffer(*args, dtype=cls.dtype, **kwargs)
        return TypedStorage(wrap_storage=made, dtype=cls.dtype)

    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> TypedStorage:
        """The first ``size`` numbers of a file: see :meth:`UntypedStorage.from_file`."""
        made = UntypedStorage.from_file(filename, shared, size * cls.dtype.itemsize)
        return TypedStorage(wrap_storage=made, dtype=cls.dtype)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype


class BFloat16Storage(metaclass=_Legacy):
    """Storages of bfloat16; see :class:`FloatStorage`."""

    dtype = _native.bfloat16


class BoolStorage(metaclass=_Legacy):
    """Storages of bool; see :class:`FloatStorage`."""

    dtype = _native.bool


class ByteStorage(metaclass=_Legacy):
    """Storages of uint8; see :class:`FloatStorage`."""

    dtype = _native.uint8


class CharStorage(metaclass=_Legacy):
    """Storages of int8; see :class:`FloatStorage`."""

    dtype = _native.int8


class ComplexDoubleStorage(metaclass=_Legacy):
    """Storages of complex128; see :class:`FloatStorage`."""

    dtype = _native.complex128


class ComplexFloatStorage(metaclass=_Legacy):
    """Storages of complex64; see :class:`FloatStorage`."""

    dtype = _native.complex64


class DoubleStorage(metaclass=_Legacy):
    """Storages of float64; see :class:`FloatStorage`."""

    dtype = _native.float64


class FloatStorage(metaclass=_Legacy):
    """Storages of float32: ``FloatStorage(3)`` has three numbers, ``FloatStorage([1, 2])`` these."""

    dtype = _native.float32


class HalfStorage(metaclass=_Legacy):
    """Storages of float16; see :class:`FloatStorage`."""

    dtype = _native.float16


class IntStorage(metaclass=_Legacy):
    """Storages of int32; see :class:`FloatStorage`."""

    dtype = _native.int32


class LongStorage(metaclass=_Legacy):
    """Storages of int64; see :class:`FloatStorage`."""

    dtype = _native.int64


class ShortStorage(metaclass=_Legacy):
    """Storages of int16; see :class:`FloatStorage`."""

    dtype = _native.int16


class _Default(_Legacy):
    @property
    def dtype(cls) -> dtype:  # type: ignore[override]  # of now, where the others have theirs
        return _native.get_default_dtype()


class Storage(metaclass=_Default):
    """Storages of the default dtype; see :class:`FloatStorage`."""


LEGACY: dict[str, Any] = {name: kind for name, kind in globals().items() if type(kind) is _Legacy}
_METHODS = {"ComplexFloat": "complex_float", "ComplexDouble": "complex_double"}
for _name, _kind in LEGACY.items():
    _name = _name.removesuffix("Storage")
    _cast(_METHODS.get(_name, _name.lower()), _kind.dtype)
for _name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"):
    _cast(_name, getattr(_native, _name))


def class_for(dtype: dtype) -> Any:
    """The class of storages of a dtype, ``TypedStorage`` for one that has none."""
    return next((kind for kind in LEGACY.values() if kind.dtype is dtype), TypedStorage)
