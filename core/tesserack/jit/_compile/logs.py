"""What becomes of compiled functions, told as it happens: ``TESSERACK_LOGS=graphs,breaks`` in the environment, or
``TORCH_LOGS`` with PyTorch's names for them. Messages are those of the logger ``tesserack.compile``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

__all__ = ["logger", "switch", "tell"]

logger = logging.getLogger("tesserack.compile")
_KINDS = {
    "graphs": ("graphs", "graph", "graph_code", "aot_graphs", "recompiles", "dynamo", "all"),
    "breaks": ("breaks", "graph_breaks", "dynamo", "all"),
}
_on: set[str] = set()


def switch(names: Iterable[str]) -> None:
    """Have these told from now on, on the standard error where the program has no handler for them, and no others; a
    sign before a name is a level in PyTorch: with a minus none is told."""
    asked = {name.strip().lstrip("+").lower() for name in names if not name.strip().startswith("-")}
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


switch(f"{os.environ.get('TESSERACK_LOGS', '')},{os.environ.get('TORCH_LOGS', '')}".split(","))
