"""Functions of the package that are no operators: constants, dtype limits, interchange, memory, threads."""

from __future__ import annotations

import builtins
import math

from tesserack import _native
from tesserack._native import Size, Tensor

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, ClassVar

    from tesserack._native import device, dtype
    from tesserack.backends._device_module import DeviceModule

__all__ = [
    "asarray",
    "broadcast_shapes",
    "compiled_with_cxx11_abi",
    "e",
    "finfo",
    "from_dlpack",
    "frombuffer",
    "get_device_module",
    "get_num_threads",
    "iinfo",
    "inf",
    "is_complex",
    "is_floating_point",
    "is_inference",
    "is_nonzero",
    "is_tensor",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "nan",
    "newaxis",
    "numel",
    "pi",
    "set_num_threads",
    "typename",
]

inf = math.inf
nan = math.nan
pi = math.pi
e = math.e
newaxis: None = None


def is_tensor(obj: Any, /) -> bool:
    """Whether ``obj`` is a Tensor."""
    return isinstance(obj, Tensor)


def typename(obj: Any, /) -> str:
    """The name of a type or function, or of an object's type, with its module unless builtin; of a tensor ``x.type()``.

    >>> typename(1), typename(typename)
    ('int', 'tesserack._tensor.functions.typename')
    """
    if isinstance(obj, Tensor):
        return str(obj.type())
    named = obj if isinstance(getattr(obj, "__qualname__", None), str) else type(obj)
    module = getattr(named, "__module__", None)
    return named.__qualname__ if module in (None, "", "builtins") else f"{module}.{named.__qualname__}"


def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.numel()


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is floating."""
    return input.is_floating_point()


def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex."""
    return input.is_complex()


def is_inference(input: Tensor) -> bool:
    """Whether the tensor was made under ``inference_mode``."""
    return input.is_inference()


def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero. RuntimeError unless there is exactly one."""
    return builtins.bool(input)


def compiled_with_cxx11_abi() -> bool:
    """Always True."""
    return True


def broadcast_shapes(*shapes: int | Sequence[int]) -> Size:
    """The shape that tensors of these shapes broadcast to.

    Raises ``RuntimeError`` if they do not, ``ValueError`` if a length is negative.

    >>> broadcast_shapes((3, 1), (4,))
    tesserack.Size([3, 4])
    """
    tuples = [(shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes]
    if any(length < 0 for shape in tuples for length in shape):
        raise ValueError(f"broadcast_shapes: Trying to create tensor with negative dimension: {tuples}")
    result: list[int] = []
    for position in range(max(map(len, tuples), default=0)):
        sizes = {shape[-1 - position] for shape in tuples if position < len(shape)} - {1}
        if len(sizes) > 1:
            raise RuntimeError(f"broadcast_shapes: Attempting to broadcast a dimension of length {max(sizes)} at "
                               f"{-1 - position}! Shapes {tuples} can not be broadcast together")  # fmt: skip
        result.append(sizes.pop() if sizes else 1)
    return Size(reversed(result))


# --- interchange ---------------------------------------------------------------------------------------------------


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of another library's tensor, by way of DLPack.

    ``ext_tensor`` has ``__dlpack__``, or is a DLPack capsule. ``device`` moves it, ``copy=True`` always copies and
    ``copy=False`` refuses to. ``ValueError`` unless its memory is the host's, or for a copy that is forbidden.
    """
    shared = _native._from_dlpack(ext_tensor)
    result = shared if device is None else shared.to(device)
    if result is not shared and copy is False:
        raise ValueError(f"from_dlpack: cannot move memory of {shared.device} to {result.device} without a copy")
    return result.clone() if copy and result is shared else result


def frombuffer(buffer: Any, *, dtype: dtype, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A one-dimensional tensor over an object with the buffer protocol; ``offset`` in bytes, ``count`` in elements.

    >>> frombuffer(bytearray(b"ab"), dtype=_native.uint8).tolist()
    [97, 98]
    """
    tensor = _native._from_buffer(buffer, dtype, count, offset)
    _native._warn_read_only(tensor)
    return tensor.requires_grad_() if requires_grad else tensor


def asarray(
    obj: Any,
    *,
    dtype: dtype | None = None,
    device: device | str | None = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """``obj`` as a tensor: shared where possible, always copied with ``copy=True``, never with ``copy=False``.

    Takes tensors, storages, arrays, DLPack objects, buffers, numbers and sequences. ``ValueError`` when
    ``copy=False`` is impossible. Gradients reach a tensor unless ``requires_grad`` says True, to make a leaf, or False.
    """
    source = _as_source(obj, dtype)
    result = _native.as_tensor(source, dtype=dtype, device=device)
    shared = isinstance(source, Tensor) and _same_memory(source, result)
    if copy is False and not shared:
        raise ValueError(f"asarray: cannot share the memory of a {type(obj).__name__} without a copy")
    if copy and shared:
        result = result.clone()
    if requires_grad is None or requires_grad == result.requires_grad:
        return result
    return result.requires_grad_() if requires_grad else result.detach()


def _as_source(obj: Any, dtype: dtype | None) -> Any:
    if isinstance(obj, (Tensor, bool, int, float, complex, list, tuple)):
        return obj
    if type(obj).__module__.split(".")[0] == "numpy":
        return _native.from_numpy(obj) if hasattr(obj, "__array_interface__") and obj.ndim else obj
    if hasattr(obj, "__dlpack__") or type(obj).__name__ == "PyCapsule":
        return from_dlpack(obj)
    if hasattr(obj, "_storage_numbers"):
        return obj._storage_numbers(dtype)
    try:
        memoryview(obj)
    except TypeError:
        return obj
    return _native._from_buffer(obj, dtype or _native.get_default_dtype(), -1, 0)


def _same_memory(a: Tensor, b: Tensor) -> bool:
    return a.device == b.device and a._storage_ptr() == b._storage_ptr() and a.storage_offset() == b.storage_offset()


# --- limits of dtypes ----------------------------------------------------------------------------------------------


def _of_python(kind: Any) -> Any:
    """The dtype that a Python type stands for."""
    types = {float: _native.float64, complex: _native.complex128, int: _native.int64, bool: _native.bool}
    return types.get(kind, kind)


class finfo:
    """Limits of a floating dtype: ``bits eps max min tiny smallest_normal resolution dtype``.

    >>> finfo(_native.float32).max
    3.4028234663852886e+38
    """

    # bits, mantissa bits, largest exponent, decimal digits
    _FORMATS: ClassVar[dict[str, tuple[int, int, int, int]]] = {
        "float16": (16, 10, 15, 3),
        "bfloat16": (16, 7, 127, 2),
        "float32": (32, 23, 127, 6),
        "float64": (64, 52, 1023, 15),
    }
    # eps, min, max, exponent of the smallest normal number, as PyTorch says, also where its eps is doubtful
    _NARROW: ClassVar[dict[str, tuple[float, float, float, int]]] = {
        "float8_e4m3fn": (0.125, -448.0, 448.0, -6),
        "float8_e4m3fnuz": (0.125, -240.0, 240.0, -7),
        "float8_e5m2": (0.25, -57344.0, 57344.0, -14),
        "float8_e5m2fnuz": (0.125, -57344.0, 57344.0, -15),
        "float8_e8m0fnu": (1.0, 2.0**-127, 2.0**127, -127),
        "float6_e2m3fn": (0.125, -7.5, 7.5, 0),
        "float6_e3m2fn": (0.25, -28.0, 28.0, -2),
        "float4_e2m1fn": (0.5, -6.0, 6.0, 0),
    }

    def __init__(self, type: dtype | None = None) -> None:
        kind = _native.get_default_dtype() if type is None else _of_python(type)
        if kind.is_complex:
            kind = kind.to_real()
        self.dtype = str(kind).rpartition(".")[2]
        if self.dtype in self._NARROW:
            self.eps, self.min, self.max, exponent = self._NARROW[self.dtype]
            self.bits, self.resolution = int(self.dtype[len("float")]), 1.0
            self.smallest_normal = self.tiny = 2.0**exponent
            return
        if self.dtype not in self._FORMATS:
            raise TypeError(f"finfo: expected a floating dtype, got {kind}; use tesserack.iinfo for integers")
        self.bits, mantissa, exponent, digits = self._FORMATS[self.dtype]
        self.eps = 2.0**-mantissa
        self.max = (2.0 - self.eps) * 2.0**exponent
        self.min = -self.max
        self.smallest_normal = self.tiny = 2.0 ** (1 - exponent)
        self.resolution = 10.0**-digits

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, finfo) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash(("finfo", self.dtype))


class iinfo:
    """Limits of an integer dtype: ``bits max min dtype``.

    >>> iinfo(_native.int8).min
    -128
    """

    def __init__(self, type: dtype) -> None:
        type = _of_python(type)
        if type.is_floating_point or type.is_complex or type is _native.bool:
            raise TypeError(f"iinfo: expected an integer dtype, got {type}; use tesserack.finfo for floating dtypes")
        self.dtype = str(type).rpartition(".")[2]
        self.bits = int(self.dtype.lstrip("uint").partition("_")[0])
        self.min = -(2 ** (self.bits - 1)) if type.is_signed else 0
        self.max = 2 ** (self.bits - type.is_signed) - 1

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, iinfo) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash(("iinfo", self.dtype))


# --- devices -------------------------------------------------------------------------------------------------------


def get_device_module(device: device | str | None = None) -> DeviceModule:
    """The functions of a backend, by its name or a device of it: ``tesserack.<name>``, also where that means another.

    Raises ``BackendUnavailableError`` for a name that no installed backend has.

    >>> get_device_module("cpu").device_count()
    1
    """
    from tesserack.backends import _device_module

    return _device_module.of(device)


# --- memory and threads --------------------------------------------------------------------------------------------


def memory_allocated(device: device | str | None = None) -> int:
    """Bytes in live tensors on a device."""
    return _native.memory_stats(device)["allocated"]


def max_memory_allocated(device: device | str | None = None) -> int:
    """The most bytes ever in live tensors at once, since ``reset_peak_memory_stats``."""
    return _native.memory_stats(device)["allocated_peak"]


def memory_reserved(device: device | str | None = None) -> int:
    """Bytes held from a device, cached ones included."""
    return _native.memory_stats(device)["reserved"]


def max_memory_reserved(device: device | str | None = None) -> int:
    """The most bytes ever held from a device."""
    return _native.memory_stats(device)["reserved_peak"]


def set_num_threads(num: int, /) -> None:
    """Set how many threads kernels of the default device use. ``ValueError`` unless positive."""
    if num < 1:
        raise ValueError(f"set_num_threads: expected a positive number, got {num}")
    _native._set_num_threads(_native.get_default_device().type, num)


def get_num_threads() -> int:
    """How many threads kernels of the default device use."""
    return _native._get_num_threads(_native.get_default_device().type)
