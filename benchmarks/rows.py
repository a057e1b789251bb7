"""What a benchmark row is, and where to find the rows of each family."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FAMILIES = (
    *("overhead", "kernels", "operators", "sizes", "transforms", "loading", "training", "models", "inference"),
    *("memory", "graphs"),
)

# A row's setup gets the framework's module (torch or tesserack) and the device, and returns the statement's names.
Setup = Callable[[Any, str], dict[str, Any]]


@dataclass(frozen=True)
class Cost:
    """What a statement cannot do without: bytes read and written once, or multiplications and additions of a dtype."""

    read: int = 0
    written: int = 0
    flops: int = 0
    dtype: str = "float32"


@dataclass(frozen=True)
class Row:
    """One measured statement, written once for every framework with PyTorch's names."""

    family: str
    name: str
    statement: str
    setup: Setup
    limit: float | None  # the ratio to stay under, tesserack's over torch's
    memory: bool = False  # measured is not the time but what the process comes to hold at most, in bytes
    cost: Cost | None = None  # the machine takes some time for it; within a tenth of that, the ratio may be any
    fresh: bool = False  # each pair in new processes: where the pages of its tensors came to lie decides


_rows: dict[str, Row] = {}


def row(
    name: str,
    statement: str,
    limit: float | None = None,
    memory: bool = False,
    cost: Cost | None = None,
    fresh: bool = False,
) -> Callable[[Setup], Setup]:
    """Register the decorated setup as the row ``name`` of the family its module is called after."""

    def register(setup: Setup) -> Setup:
        if name in _rows:
            raise ValueError(f"benchmarks: two rows are called {name!r}")
        _rows[name] = Row(setup.__module__, name, statement, setup, limit, memory, cost, fresh)
        return setup

    return register


def all_rows() -> dict[str, Row]:
    """Every row by name, in the order of the files."""
    for family in FAMILIES:
        importlib.import_module(family)
    return _rows
