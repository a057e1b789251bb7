"""What subcommands print: tables, JSON, sizes."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["add_json_option", "print_json", "print_table", "table", "tell"]


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """``--json``, the same everywhere."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    import json

    print(json.dumps(value, indent=2))


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows in columns as wide as needed; the last column is not padded."""
    print("\n".join(table(header, rows)))


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of :func:`print_table`.

    >>> table(["name", "n"], [["a", 1]])
    ['name  n', 'a     1']
    """
    lines = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(header))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def tell(text: str) -> None:
    """Print beside the output, unless the program that ran has closed that or set None in its place."""
    if sys.stderr is not None:  # which print would take for the output
        with contextlib.suppress(AttributeError, ValueError):
            print(text, file=sys.stderr)
