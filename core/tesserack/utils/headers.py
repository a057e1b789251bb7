"""Where native code finds the headers and the CMake package of this installation."""

from __future__ import annotations

from pathlib import Path

from tesserack import _native

__all__ = ["cmake_dir", "get_include"]


def get_include() -> str:
    """The folder to give a compiler with ``-I``: it holds ``tesserack/abi.h`` and ``tesserack/backend.hpp``.

    Raises ``FileNotFoundError`` if this installation has lost them.

    >>> import os, tesserack
    >>> os.path.exists(os.path.join(tesserack.get_include(), "tesserack", "abi.h"))
    True
    """
    return _folder("get_include", "include", "tesserack/abi.h")


def cmake_dir() -> str:
    """The folder of the CMake package, for ``find_package(tesserack CONFIG)``: give it as ``-Dtesserack_DIR=``.

    The package defines the target ``tesserack::abi`` (the headers) and the function
    ``tesserack_add_backend(NAME SOURCES...)``. Raises ``FileNotFoundError`` if this installation has lost it.

    >>> import os, tesserack
    >>> os.path.exists(os.path.join(tesserack.cmake_dir(), "tesserackConfig.cmake"))
    True
    """
    return _folder("cmake_dir", "cmake", "tesserackConfig.cmake")


def _folder(asked: str, name: str, holds: str) -> str:
    """An installation keeps these folders beside the native library; a checkout beside its Python sources."""
    candidates = (Path(_native.__file__).parent / name, Path(__file__).resolve().parents[2] / name)
    for folder in candidates:
        if (folder / holds).exists():
            return str(folder)
    raise FileNotFoundError(
        f"{asked}: expected {holds} in one of {', '.join(map(str, candidates))}; reinstall tesserack"
    )
