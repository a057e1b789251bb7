"""``torch.utils.cpp_extension``: extensions that setuptools builds against Tesserack's headers.

What is written against PyTorch's C++ library, or for CUDA, cannot be built here, and says so when it is built. To
compile while a program runs there is :mod:`tesserack.utils.cpp_extension`.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
from typing import Any

from tesserack.utils.cpp_extension import CFLAGS, find_compiler
from tesserack.utils.headers import get_include

__all__ = [
    "CUDA_HOME",
    "CUDAExtension",
    "CppExtension",
    "get_cxx_compiler",
    "include_paths",
    "is_ninja_available",
    "library_paths",
    "load",
    "verify_ninja_availability",
]

CUDA_HOME = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
CUDNN_HOME = os.environ.get("CUDNN_HOME")
ROCM_HOME = SYCL_HOME = HIP_HOME = ROCM_VERSION = None
IS_HIP_EXTENSION = False
IS_WINDOWS, IS_MACOS, IS_LINUX = (sys.platform.startswith(each) for each in ("win", "darwin", "linux"))
LIB_EXT = ".pyd" if IS_WINDOWS else ".so"
CLIB_PREFIX, CLIB_EXT = ("", ".dll") if IS_WINDOWS else ("lib", ".so")
EXEC_EXT, SHARED_FLAG = (".exe", "/DLL") if IS_WINDOWS else ("", "-shared")
SUBPROCESS_DECODE_ARGS = ("oem",) if IS_WINDOWS else ()
COMMON_NVCC_FLAGS: list[str] = []
TORCH_LIB_PATH = os.path.join(os.path.dirname(importlib.import_module("tesserack").__file__ or ""), "lib")
_THEIRS = re.compile(r'^\s*#\s*include\s*["<]((?:torch|ATen|c10|caffe2)/[^">]+)[">]', re.MULTILINE)


def include_paths(device_type: str = "cpu") -> list[str]:
    """The folder of ``tesserack/abi.h``."""
    return [str(get_include())]


def library_paths(device_type: str = "cpu", *args: Any, **kwargs: Any) -> list[str]:
    """None: an extension uses no library of Tesserack's, which hands it its functions."""
    return []


def get_cxx_compiler() -> str:
    """The command of the C++ compiler."""
    return " ".join(find_compiler())


def is_ninja_available() -> bool:
    """Whether there is a ``ninja``, which is not used."""
    return shutil.which("ninja") is not None


def verify_ninja_availability() -> None:
    """``RuntimeError`` where there is none."""
    if not is_ninja_available():
        raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")


def load(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
    """``RuntimeError``: modules of Python in C++ are written against PyTorch's library."""
    listed = [sources] if isinstance(sources, (str, os.PathLike)) else [*sources]
    reason = _theirs([os.fspath(source) for source in listed]) or "it is a module of Python in C++"
    raise RuntimeError(f"cpp_extension.load: {name!r} cannot be built: {reason}; compile a library of operators or a "
                       "backend with tesserack.utils.cpp_extension.load")  # fmt: skip


def CppExtension(name: str, sources: list[Any], *args: Any, **kwargs: Any) -> Any:
    """An extension of setuptools in C++, with the folder of our headers."""
    Extension: Any = importlib.import_module("setuptools").Extension  # which has no annotations

    kwargs["include_dirs"] = [*kwargs.get("include_dirs", []), *include_paths()]
    kwargs["language"] = "c++"
    flags = kwargs.get("extra_compile_args", [])
    kwargs["extra_compile_args"] = flags.get("cxx", []) if isinstance(flags, dict) else flags
    return Extension(name, [os.fspath(source) for source in sources], *args, **kwargs)


def CUDAExtension(name: str, sources: list[Any], *args: Any, **kwargs: Any) -> Any:
    """An extension with kernels for CUDA: ``RuntimeError`` when it is built."""
    made = CppExtension(name, sources, *args, **kwargs)
    made._tesserack_refused = "it has kernels for CUDA; a card of Tesserack's takes them as docs/backends says"
    return made


def __getattr__(name: str) -> Any:
    if name != "BuildExtension":
        raise AttributeError(f"module 'torch.utils.cpp_extension' has no attribute {name!r}")
    # Made when it is asked for: setuptools is there where something is built.
    made = _build_extension()
    globals()["BuildExtension"] = made
    return made


def _build_extension() -> Any:
    build_ext: Any = importlib.import_module("setuptools.command.build_ext").build_ext

    class BuildExtension(build_ext):  # type: ignore[misc]
        """``build_ext`` with what every library here is compiled with."""

        @classmethod
        def with_options(cls, **options: Any) -> Any:
            """The class; PyTorch's options, such as ``use_ninja``, have no effect."""
            return cls

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            for option in ("no_python_abi_suffix", "use_ninja"):
                kwargs.pop(option, None)
            super().__init__(*args, **kwargs)

        def build_extension(self, ext: Any) -> None:
            """Build one. ``RuntimeError`` for what is written against PyTorch's C++ library, or for CUDA."""
            reason = getattr(ext, "_tesserack_refused", None) or _theirs(ext.sources)
            if reason:
                raise RuntimeError(f"BuildExtension: {ext.name} cannot be built against Tesserack: {reason}")
            ext.extra_compile_args = [CFLAGS[0], *(ext.extra_compile_args or [])]
            super().build_extension(ext)

    return BuildExtension


def _theirs(sources: list[str]) -> str:
    """What keeps sources from being built here."""
    for source in sources:
        if source.endswith((".cu", ".cuh")):
            return f"{source} is written for CUDA"
        with open(source, encoding="utf-8", errors="replace") as file:
            found = _THEIRS.search(file.read())
        if found:
            return f"{source} includes <{found[1]}> of PyTorch's C++ library; Tesserack's header is <tesserack/abi.h>"
    return ""
