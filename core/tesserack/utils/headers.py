"""Where native code finds the headers and the CMake package of this installation."""

from __future__ import annotations

from collections.abc import Iterator
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
    for folder in _candidates():
        if (folder / "tesserack" / "abi.h").exists():
            return str(folder)
    raise FileNotFoundError(
        f"get_include: expected tesserack/abi.h in one of {', '.join(map(str, _candidates()))}; reinstall tesserack"
    )


def cmake_dir() -> str:
    """The folder of the CMake package, for ``find_package(tesserack CONFIG)``: give it as ``-Dtesserack_DIR=``.

    The package defines the target ``tesserack::abi`` (the headers) and the function
    ``tesserack_add_backend(NAME SOURCES...)``.

    >>> import os, tesserack
    >>> os.path.exists(os.path.join(tesserack.cmake_dir(), "tesserackConfig.cmake"))
    True
    """
    return str(Path(__file__).resolve().parent / "cmake")


def _candidates() -> Iterator[Path]:
    """An installation keeps the headers beside the native library; a checkout beside its Python sources."""
    yield Path(_native.__file__).parent / "include"
    yield Path(__file__).resolve().parent.parent / "include"
