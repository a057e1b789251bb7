"""CUDA's runtime, driver and compiler as CuPy binds them, loaded when first asked for."""

from __future__ import annotations

import ctypes
import warnings
from typing import Any, NamedTuple

__all__ = ["Driver", "load"]


class Driver(NamedTuple):
    """The three modules of CuPy that the backend calls, and where kernels are launched.

    ``runtime``, ``driver`` and ``nvrtc`` have the functions of ``cupy_backends.cuda.api.runtime``,
    ``cupy_backends.cuda.api.driver`` and ``cupy_backends.cuda.libs.nvrtc`` under their names there.
    """

    runtime: Any
    driver: Any
    nvrtc: Any
    launch_kernel: int
    set_context: int


def load() -> Driver:
    """The driver of this machine. ``OSError`` or ``ImportError`` where there is none."""
    library = ctypes.CDLL("libcuda.so.1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns of each optional library that is absent
        import cupy  # noqa: F401, which finds the libraries that the bindings open
        from cupy_backends.cuda.api import driver, runtime
        from cupy_backends.cuda.libs import nvrtc

    def address(name: str) -> int:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0

    return Driver(runtime, driver, nvrtc, address("cuLaunchKernel"), address("cuCtxSetCurrent"))
