"""Which files are trusted, and what a program declares safe: files that run nothing else may name it."""

from __future__ import annotations

import contextlib
import os
import warnings
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Iterator
from typing import Any

__all__ = [
    "add_safe_globals",
    "clear_safe_globals",
    "declared",
    "get_safe_globals",
    "only_weights",
    "safe_globals",
    "today",
]

_safe: list[Any] = []
_BLOCKED = frozenset(("nt", "os", "posix", "sys"))  # of which nothing is safe, whatever is declared


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Declare classes and functions that files may name."""
    _safe.extend(item for item in safe_globals if item not in _safe)


def clear_safe_globals() -> None:
    """Forget what was declared."""
    _safe.clear()


def get_safe_globals() -> list[Any]:
    """What was declared."""
    return [*_safe]


@contextlib.contextmanager
def safe_globals(items: list[Any]) -> Iterator[None]:
    """Within it, these may be named too."""
    before = [*_safe]
    add_safe_globals(items)
    try:
        yield
    finally:
        _safe[:] = before


def today(module: str, name: str) -> tuple[str, str]:
    """A name of a pickle as it is now: up to protocol 2, which torch.save writes, names are those of Python 2.

    >>> today("__builtin__", "xrange"), today("collections", "Counter")
    (('builtins', 'range'), ('collections', 'Counter'))
    """
    return NAME_MAPPING.get((module, name)) or (IMPORT_MAPPING.get(module, module), name)


def declared(module: str, name: str) -> Any:
    """What was declared safe under a name of a pickle's, or under what that is called today; else ``LookupError``."""
    known = today(module, name)
    wanted = (f"{module}.{name}", ".".join(known))
    for item in () if known[0].partition(".")[0] in _BLOCKED else _safe:
        item, full = item if isinstance(item, tuple) else (item, f"{item.__module__}.{item.__qualname__}")
        if full in wanted:
            return item
    raise LookupError(name)


def only_weights(asked: bool | None, pickle_module: Any) -> bool:
    """Whether ``torch.load`` runs nothing of a file: as it is asked to, unless the environment says otherwise."""
    yes = ("1", "y", "yes", "true")
    only, whole = (os.environ.get(f"TORCH_FORCE_{each}WEIGHTS_ONLY_LOAD", "0").lower() in yes for each in ("", "NO_"))
    if only and whole:
        raise RuntimeError(
            "load: only one of TORCH_FORCE_WEIGHTS_ONLY_LOAD and TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD should be set, but "
            "both were set"
        )
    if whole and asked is None and not only:
        warnings.warn(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the `weights_only` argument was not "
            "explicitly passed to `torch.load`, forcing weights_only=False.",
            stacklevel=3,
        )
        return False
    if (only or asked) and pickle_module is not None:
        raise RuntimeError("load: weights_only=True reads by no pickle module; leave pickle_module out")
    return only or (pickle_module is None if asked is None else asked)
