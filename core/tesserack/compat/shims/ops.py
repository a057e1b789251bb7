"""``torch.ops``: a namespace of operators under every name."""

from __future__ import annotations

import importlib
import os
from typing import Any

from tesserack.aten.operators import namespace
from tesserack.library import dispatch

__all__ = ["load_library", "loaded_libraries"]

loaded_libraries: set[str] = set()


def load_library(path: str | os.PathLike[str]) -> None:
    """Load operators from a library built for Tesserack; ``OSError`` for any other file."""
    try:
        dispatch.load_library(path)
    except RuntimeError as error:
        raise OSError(f"ops: {os.fspath(path)} is no library of Tesserack operators: {error}") from error
    loaded_libraries.add(os.path.realpath(path))


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "higher_order":
        return importlib.import_module("tesserack.ops.higher_order")
    if name == "profiler":
        return importlib.import_module("tesserack.compat.shims._profiler_ops")
    return namespace(name)
