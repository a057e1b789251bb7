"""The native launchers, by ctypes: their addresses, and how many kernels they have launched."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "TimedLaunch",
    "address",
    "cublaslt_product",
    "cuda_kernel",
    "cudnn_graph",
    "cudnn_lock",
    "launches",
    "opencl_kernel",
    "opencl_launch",
    "time_launches",
    "timed_launches",
]

_LIBRARY = "libtesserack_kernelgen.so"


@functools.cache
def _library() -> ctypes.CDLL:
    # An editable install has two folders: the sources, and what was built.
    for folder in sys.modules[__package__ or ""].__path__:
        if (path := Path(folder) / _LIBRARY).exists():
            library = ctypes.CDLL(str(path))
            made = ("opencl_kernel", "cuda_kernel", "cublaslt_product", "cudnn_graph", "cudnn_lock")
            for name in made:
                getattr(library, f"tesserack_{name}").restype = ctypes.c_void_p
            library.tesserack_kernelgen_launches.restype = ctypes.c_uint64
            return library
    raise FileNotFoundError(f"tesserack_kernelgen: {_LIBRARY} not found; reinstall tesserack-kernelgen")


def address(driver: str) -> int:
    """The launcher of a driver or library, "opencl", "cuda", "cublaslt" or "cudnn": of the first two, what
    :attr:`Card.entry` is.
    """
    return ctypes.cast(getattr(_library(), f"tesserack_{driver}_launch"), ctypes.c_void_p).value or 0


def opencl_kernel(set_argument: int, enqueue: int, kernel: int, queue: int) -> int:
    """What the OpenCL launcher takes for a kernel: addresses of clSetKernelArg and clEnqueueNDRangeKernel, a kernel,
    and the queue of the default stream.
    """
    return int(_library().tesserack_opencl_kernel(*map(ctypes.c_void_p, (set_argument, enqueue, kernel, queue))))


class _Argument(ctypes.Structure):
    """``ts_launch_argument`` of ``tesserack/launch.h``."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("value", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("kind", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    )


class _Launch(ctypes.Structure):
    """``ts_launch`` of ``tesserack/launch.h``."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        *((name, ctypes.c_void_p) for name in ("host", "stream", "kernel")),
        ("device_index", ctypes.c_int32),
        ("n_arguments", ctypes.c_int32),
        ("argument_size", ctypes.c_size_t),
        ("arguments", ctypes.c_void_p),
        ("groups", ctypes.c_uint64 * 3),
        ("group_size", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("op", ctypes.c_void_p),
        ("number", ctypes.c_uint64),
    )


def opencl_launch(kernel: int, *values: Any) -> int:
    """Launch what :func:`opencl_kernel` made, one item with numbers of ctypes as arguments: a try, beside the core,
    which launches by the address alone. The status, 0 where it was queued.
    """
    size = ctypes.sizeof(_Argument)
    told = [_Argument(size, ctypes.addressof(value), ctypes.sizeof(value)) for value in values]
    arguments = (_Argument * len(values))(*told)
    launch = _Launch(struct_size=ctypes.sizeof(_Launch), kernel=kernel, n_arguments=len(values), argument_size=size)
    launch.arguments = ctypes.addressof(arguments)
    launch.groups[:] = launch.group_size[:] = 1, 1, 1
    return int(_library().tesserack_opencl_launch(ctypes.byref(launch)))


def cuda_kernel(launch_kernel: int, set_context: int, function: int, context: int) -> int:
    """What the CUDA launcher takes for a kernel: addresses of cuLaunchKernel and cuCtxSetCurrent, a CUfunction, and its
    CUcontext, which is made current before every launch unless it is 0.
    """
    addresses = map(ctypes.c_void_p, (launch_kernel, set_context, function, context))
    return int(_library().tesserack_cuda_kernel(*addresses))


class _Product(ctypes.Structure):
    """``Description`` of ``native/cublaslt.cpp``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("matmul", "set_attribute", "set_context", "context", "handle", "desc")),
        ("layouts", ctypes.c_void_p * 4),
        ("algorithm", ctypes.c_ubyte * 64),
        ("alpha", ctypes.c_ubyte * 16),
        ("beta", ctypes.c_ubyte * 16),
        ("workspace_bytes", ctypes.c_int64),
        ("outer", ctypes.c_int64),
        ("outer_steps", ctypes.c_int64 * 4),
        ("has_c", ctypes.c_int32),
        ("has_bias", ctypes.c_int32),
    )


def cublaslt_product(**fields: Any) -> int:
    """What the launcher of cuBLASLt takes for a kernel. Fields as in ``native/cublaslt.cpp``, arrays as bytes or tuple.

    ``matmul``, ``set_attribute`` and ``set_context`` are addresses of cublasLtMatmul, cublasLtMatmulDescSetAttribute
    and cuCtxSetCurrent.
    """
    return _described("cublaslt_product", _Product(), fields)


class _Graph(ctypes.Structure):
    """``Description`` of ``native/cudnn.cpp``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("create", "destroy", "set_attribute", "finalize", "execute")),
        *((name, ctypes.c_void_p) for name in ("set_stream", "set_context", "context", "handle", "lock", "plan")),
        ("workspace_bytes", ctypes.c_int64),
        ("uids", ctypes.c_int64 * 4),
        ("staged", ctypes.c_int64 * 4),
        ("n_tensors", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    )


def cudnn_graph(**fields: Any) -> int:
    """What the launcher of cuDNN takes for a kernel. Fields as in ``native/cudnn.cpp``, arrays as tuples.

    ``create`` to ``set_context`` are addresses of cudnnBackendCreateDescriptor, cudnnBackendDestroyDescriptor,
    cudnnBackendSetAttribute, cudnnBackendFinalize, cudnnBackendExecute, cudnnSetStream and cuCtxSetCurrent.
    """
    return _described("cudnn_graph", _Graph(), fields)


def cudnn_lock() -> int:
    """What keeps threads apart that launch with one handle of cuDNN."""
    return int(_library().tesserack_cudnn_lock())


def _described(name: str, made: ctypes.Structure, fields: dict[str, Any]) -> int:
    """A kernel of a launcher that is told by a struct."""
    for field, value in fields.items():
        if isinstance(value, (bytes, tuple)):
            getattr(made, field)[: len(value)] = value
        else:
            setattr(made, field, value)
    kernel = getattr(_library(), f"tesserack_{name}")(ctypes.byref(made), ctypes.c_size_t(ctypes.sizeof(made)))
    if kernel is None:
        raise RuntimeError("tesserack_kernelgen: its native library is of another version; reinstall the package")
    return int(kernel)


class TimedLaunch(NamedTuple):
    """A launch of a profiled call, with addresses of the driver's events that know when it began and ended."""

    op: str
    number: int
    stream: int
    begin: int
    end: int


class _TimedLaunch(ctypes.Structure):
    """``TimedLaunchOut`` of ``native/opencl.cpp``."""

    _fields_ = (
        ("op", ctypes.c_char * 64),
        ("number", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
        ("events", ctypes.c_void_p * 2),
    )


_FAMILIES = ("opencl", "cuda")


def time_launches(driver: str, on: bool) -> None:
    """Launches of calls that somebody profiles are timed from now on, or no more: of ``"opencl"`` or ``"cuda"``."""
    _library().tesserack_time_launches(ctypes.c_int(_FAMILIES.index(driver)), ctypes.c_int(on))


def timed_launches(driver: str, device: int) -> Iterator[TimedLaunch]:
    """Those of a device since the last time. Their events are the caller's, who releases them."""
    told, family = _TimedLaunch(), ctypes.c_int(_FAMILIES.index(driver))
    while _library().tesserack_timed_launch(family, ctypes.c_int32(device), ctypes.byref(told)):
        yield TimedLaunch(told.op.decode(), told.number, told.stream or 0, told.events[0] or 0, told.events[1] or 0)


def launches() -> int:
    """Kernels launched since the process began."""
    return int(_library().tesserack_kernelgen_launches())
