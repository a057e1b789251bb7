"""``tesserack ops``: operators, the kernels a backend must have, the kernels one has."""

from __future__ import annotations

import argparse
from typing import Any

from tesserack import _native
from tesserack.backends import capabilities
from tesserack.cli._output import add_json_option, print_json, print_table

__all__ = ["configure", "run"]

# What the entry points of the contract do; abi.h says it exactly. A test compares the names with the core's own list.
REQUIRED = {
    "copy_cast": "copy, with a change of dtype and of strides",
    "fill": "one value everywhere",
    "iota": "start, start + step, start + 2 step, ...",
    "pointwise": "a scalar program over the elements of any number of tensors",
    "reduce": "sum, prod, max, min, argmax, argmin, any, all over trailing dimensions",
    "scan": "cumulative sum, prod, max, min along the last dimension",
    "matmul": "batched matrix product, with an optional summand",
    "gather": "elements taken along a dimension by index",
    "scatter": "elements put or combined along a dimension by index",
    "sort": "values and positions along the last dimension, stable",
    "random_bits": "Philox4x32-10",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the subcommand."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--required", action="store_true", help="kernels that every backend must have")
    which.add_argument("--device", metavar="NAME", help="every kernel the core asks for, and what this backend does")
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one of the lists; with ``--device``, 1 if a required kernel is missing."""
    if arguments.required:
        return _show(
            arguments.json, ("KERNEL", "WHAT IT DOES"), [(n, REQUIRED[n]) for n in _native._required_kernels()]
        )
    if arguments.device:
        can = capabilities(arguments.device)
        _show(arguments.json, ("KERNEL", "STATUS", "DTYPES"), _kernels(can))
        return 1 if can["missing"] else 0
    rows = [(record["name"], _kind(record), record["schema"]) for record in _operators()]
    return _show(arguments.json, ("OPERATOR", "KIND", "SCHEMA"), rows)


def _show(json: bool, header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> int:
    if json:
        keys = [title.lower().replace(" ", "_") for title in header]
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        print_table(header, [tuple(" ".join(c) if isinstance(c, list) else c for c in row) for row in rows])
    return 0


def _kernels(can: dict[str, Any]) -> list[tuple[Any, ...]]:
    required = _native._required_kernels()
    rows: list[tuple[Any, ...]] = []
    for name in [*required, *sorted({*_native._kernel_names()} - {*required})]:
        if name in can["kernels"]:
            rows.append((name, "kernel", can["kernels"][name]))
        else:
            rows.append((name, "missing: falls back to the cpu" if name in required else "decomposes", []))
    return rows


def _operators() -> list[dict[str, Any]]:
    public = [record for record in _native._operators() if not record["hidden"] and record["variant"] == "functional"]
    return sorted(public, key=lambda record: str(record["name"]))


def _kind(record: dict[str, Any]) -> str:
    return str(record["kind"])
