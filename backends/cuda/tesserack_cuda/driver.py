"""CUDA's runtime, driver, compiler and libraries as CuPy binds them, loaded when first asked for."""

from __future__ import annotations

import contextlib
import ctypes
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["RELAXED", "Driver", "load"]

#: The mode of ``cuThreadExchangeStreamCaptureMode`` in which a thread may allocate while a stream is captured.
RELAXED = 2


class Driver(NamedTuple):
    """The modules of CuPy that the backend calls, and the functions that its native launchers call.

    ``runtime``, ``driver`` and ``nvrtc`` have the functions of ``cupy_backends.cuda.api.runtime``,
    ``cupy_backends.cuda.api.driver`` and ``cupy_backends.cuda.libs.nvrtc`` under their names there.

    Args:
        launch_kernel: address of cuLaunchKernel; ``set_context`` that of cuCtxSetCurrent.
        exchange_capture_mode: cuThreadExchangeStreamCaptureMode: sets this thread's mode, returns the one before.
        pool: CuPy's default memory pool.
        on_stream: a context in which a stream, by device and handle, is CuPy's current one.
        library: "cublasLt" or "cudnn" (ctypes libraries), or "nccl" (a module); None where it is not installed.
    """

    runtime: Any
    driver: Any
    nvrtc: Any
    launch_kernel: int
    set_context: int
    exchange_capture_mode: Callable[[int], int]
    pool: Any
    on_stream: Callable[[int], contextlib.AbstractContextManager[Any]]
    library: Callable[[str], Any]


def load() -> Driver:
    """The driver of this machine. ``OSError`` or ``ImportError`` where there is none."""
    library = ctypes.CDLL("libcuda.so.1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns of each optional library that is absent
        import cupy  # which finds the libraries that the bindings open
        from cupy_backends.cuda.api import driver, runtime
        from cupy_backends.cuda.libs import nvrtc

    def address(name: str) -> int:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0

    def exchange(mode: int) -> int:
        held = ctypes.c_int(mode)
        if status := library.cuThreadExchangeStreamCaptureMode(ctypes.byref(held)):
            raise RuntimeError(f"cuda: cuThreadExchangeStreamCaptureMode failed with status {status}")
        return held.value

    return Driver(
        runtime,
        driver,
        nvrtc,
        address("cuLaunchKernel"),
        address("cuCtxSetCurrent"),
        exchange,
        cupy.get_default_memory_pool(),
        lambda handle: cupy.cuda.Stream.from_external(_Shown(handle)) if handle else cupy.cuda.Stream.null,
        find_library,
    )


class _Shown:
    """A stream's handle by the protocol that CuPy takes it with."""

    def __init__(self, handle: int):
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def find_library(name: str) -> Any:
    """A library of :attr:`Driver.library`, or None."""
    with contextlib.suppress(ImportError, OSError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "nccl":
            from cupy.cuda import nccl

            return nccl if nccl.available else None
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

        with contextlib.suppress(DynamicLibNotFoundError):
            return ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)
    return None
