"""Functions of this package that are written in Python: whole steps of PyTorch's graphs, which no operator notes."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import tesserack
from tesserack.utils import homes

__all__ = ["functions_in_python", "ids_of_functions_in_python"]

# Questions about values, which PyTorch does not trace.
_PLAIN = frozenset({"is_tensor", "is_storage", "typename", "compile", "save", "load", "has_torch_function"})
_MODULES = ("nn.functional", "linalg", "special", "fft")


@functools.cache
def _load() -> None:
    """Have the package's functions in its namespace, where they come on first need."""
    for name, home in homes.NAMES.items():
        if home.startswith("ops."):
            getattr(tesserack, name)


def _spaces(path: str) -> Iterator[dict[str, Any]]:
    module = sys.modules.get(f"tesserack.{path}" if path else "tesserack")
    if module is not None:
        yield vars(module)
    facade = sys.modules.get(f"torch.{path}" if path else "torch")
    if type(facade).__name__ == "Facade":  # under the import hook, which keeps functions that were read
        own: Any = vars(ModuleType)["__dict__"]
        yield own.__get__(facade)


def _is_one(name: str, value: Any) -> bool:
    home = getattr(value, "__module__", None) or ""
    return (
        inspect.isfunction(value)
        and not name.startswith("_")
        and name not in _PLAIN
        and home.partition(".")[0] in ("tesserack", "torch")
    )


def functions_in_python() -> Iterator[tuple[dict[str, Any], str]]:
    """Where they are read from, and by which names."""
    _load()
    for path in ("", *_MODULES):
        for space in _spaces(path):
            yield from ((space, name) for name, value in [*space.items()] if _is_one(name, value))


def ids_of_functions_in_python() -> set[int]:
    """What they are, wherever a program has them from."""
    return {id(inspect.unwrap(space[name])) for space, name in functions_in_python()}
