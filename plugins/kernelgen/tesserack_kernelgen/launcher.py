"""The native launchers, by ctypes: their addresses, and how many kernels they have launched."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

__all__ = ["address", "cublaslt_product", "cuda_kernel", "launches", "opencl_kernel"]

_LIBRARY = "libtesserack_kernelgen.so"


@functools.cache
def _library() -> ctypes.CDLL:
    import tesserack_kernelgen

    for folder in tesserack_kernelgen.__path__:  # an editable install has two: the sources, and what was built
        if (path := Path(folder) / _LIBRARY).exists():
            library = ctypes.CDLL(str(path))
            for name in ("tesserack_opencl_kernel", "tesserack_cuda_kernel", "tesserack_cublaslt_product"):
                getattr(library, name).restype = ctypes.c_void_p
            library.tesserack_kernelgen_launches.restype = ctypes.c_uint64
            return library
    raise FileNotFoundError(f"tesserack_kernelgen: {_LIBRARY} not found; reinstall tesserack-kernelgen")


def address(driver: str) -> int:
    """The launcher of a driver, "opencl", "cuda" or "cublaslt": of the first two, what :attr:`Card.entry` is."""
    return ctypes.cast(getattr(_library(), f"tesserack_{driver}_launch"), ctypes.c_void_p).value or 0


def opencl_kernel(set_argument: int, enqueue: int, kernel: int, queue: int) -> int:
    """What the OpenCL launcher takes for a kernel: addresses of clSetKernelArg and clEnqueueNDRangeKernel, a kernel,
    and the queue of the default stream.
    """
    return int(_library().tesserack_opencl_kernel(*map(ctypes.c_void_p, (set_argument, enqueue, kernel, queue))))


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
    made = _Product()
    for name, value in fields.items():
        if isinstance(value, (bytes, tuple)):
            getattr(made, name)[: len(value)] = value
        else:
            setattr(made, name, value)
    kernel = _library().tesserack_cublaslt_product(ctypes.byref(made), ctypes.c_size_t(ctypes.sizeof(made)))
    if kernel is None:
        raise RuntimeError("tesserack_kernelgen: its native library is of another version; reinstall the package")
    return int(kernel)


def launches() -> int:
    """Kernels launched since the process began."""
    return int(_library().tesserack_kernelgen_launches())
