"""What becomes of compiled functions, told as it happens: ``TESSERACK_LOGS=graphs,breaks`` in the environment, or
``TORCH_LOGS`` with PyTorch's names for them. Messages are those of the logger ``tesserack.compile``.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable

__all__ = ["logger", "switch", "tell"]

logger = logging.getLogger("tesserack.compile")
_KINDS = {
    "graphs": ("graphs", "graph", "graph_code", "aot_graphs", "recompiles", "dynamo", "all"),
    "breaks": ("breaks", "graph_breaks", "dynamo", "all"),
}
_on: set[str] = set()


_warned: set[str] = set()


def switch(names: Iterable[str], warn: bool = False) -> None:
    """Have these told from now on, on the standard error where the program has no handler for them, and no others; a
    sign before a name is a level in PyTorch: with a minus none is told. ``warn``: once, of what tells nothing."""
    given = {name.strip().lower() for name in names}
    asked = {name.lstrip("+") for name in given if name and not name.startswith("-")}
    known = sorted({name for those in _KINDS.values() for name in those})
    for name in sorted(asked.difference(known, _warned)) if warn else ():
        _warned.add(name)
        warnings.warn(
            f"TESSERACK_LOGS, TORCH_LOGS: expected names of what is told, got {name!r}, which tells nothing here; "
            f"those that do: {', '.join(known)}",
            stacklevel=2,
        )
    _on.clear()
    _on.update(kind for kind, those in _KINDS.items() if asked.intersection(those))
    if not _on:
        return
    logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
        logger.addHandler(handler)


def tell(kind: str, text: str, *args: object) -> None:
    """Say it if it was asked for."""
    if kind in _on:
        logger.info(text, *args)


switch(f"{os.environ.get('TESSERACK_LOGS', '')},{os.environ.get('TORCH_LOGS', '')}".split(","), warn=True)
