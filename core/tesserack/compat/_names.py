"""What PyTorch has: its modules, and the names in its public ones, read from ``torch_names.txt``; and what those import
from elsewhere, from ``torch_imports.txt``."""

from __future__ import annotations

import functools
import os

__all__ = ["has_module", "has_name", "home", "names", "origin"]


def _read(file_name: str) -> dict[str, str]:
    """The words after each module's name, as one text."""
    with open(os.path.join(os.path.dirname(__file__), file_name), encoding="utf-8") as file:
        text = file.read()
    lines = (line.partition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {module: words for module, _, words in lines}


@functools.cache
def _table() -> dict[str, str]:
    """The names in each module."""
    return _read("torch_names.txt")


@functools.cache
def _imports() -> dict[str, str]:
    """What each module imports from elsewhere."""
    return _read("torch_imports.txt")


def origin(module: str, name: str) -> str:
    """Where a module of PyTorch's has a name from that it does not define, as ``module`` or ``module:attribute``.

    >>> origin("torch.nn.functional", "math"), origin("torch.nn.functional", "nosuch")
    ('math', '')
    """
    words = (word.partition("=") for word in _imports().get(module, "").split())
    return next((place for each, _, place in words if each == name), "")


@functools.cache
def names(module: str) -> frozenset[str]:
    """The names listed for a module; empty for private and unknown ones.

    >>> "matmul" in names("torch")
    True
    """
    return frozenset(_table().get(module, "").split())


def has_module(name: str) -> bool:
    """Whether PyTorch has a module of this name.

    >>> has_module("torch.distributed.fsdp"), has_module("torch.nosuch")
    (True, False)
    """
    return name in _table() and name != "torch.Tensor"  # a class, whose names are listed as well


def has_name(module: str, name: str) -> bool:
    """Whether a module of PyTorch's has the name. Private names are not listed, nor are those of private modules: any
    might be there."""
    if not has_module(module):
        return False
    listed = names(module)
    return name in listed or not listed or (name.startswith("_") and not name.startswith("__"))


@functools.cache
def _homes() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for module, listed in _table().items():
        if module.startswith(("torch.nn", "torch.optim", "torch.utils", "torch.autograd", "torch.distributions")):
            for name in listed.split():
                found.setdefault(name, []).append(module)
    return found


@functools.cache
def home(module: str, name: str) -> str:
    """The module in which PyTorch defines the class that a module, named as ours is, defines here; empty if none.

    >>> home("torch.nn.modules.conv_transpose", "ConvTranspose2d")
    'torch.nn.modules.conv'
    """
    listed = names(module)
    if name in listed:
        return module
    parts = module.split(".")
    best, score = "", (0, 0)
    for candidate in _homes().get(name, ()):
        shared = sum(a == b for a, b in zip(parts, candidate.split("."), strict=False))
        if shared >= 2 and (shared, len(candidate)) > score:
            best, score = candidate, (shared, len(candidate))
    return best or (module if has_module(module) else "")
