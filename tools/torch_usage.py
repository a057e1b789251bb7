"""Says which names that programs use PyTorch by are missing under ``tesserack.compat``, the most used first.

    python tools/torch_usage.py usage.csv [--all]

The table has the columns kind, name and uses; names of tensors' and modules' members are written ``Tensor.item`` and
``Module.parameters``. Left out are areas of their own: distributed, onnx, quantization, export, and parts of PyTorch's
compiler; --all counts them too.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import tesserack
from tesserack import compat
from tesserack.compat import _facade

AREAS = ("distributed", "onnx", "quantization", "ao", "export", "_export")
INTERNAL = ("_dynamo", "_inductor", "_functorch", "_subclasses", "_guards", "_logging", "_higher_order_ops", "_lazy")
OWNERS = {"Tensor": "torch.Tensor", "Module": "torch.nn.Module", "Optimizer": "torch.optim.Optimizer"}


def is_counted(name: str, everything: bool) -> bool:
    """Whether a name is of an area that is looked at."""
    area = name.split(".")[1] if name.startswith("torch.") else ""
    return everything or area not in (*AREAS, *INTERNAL)


def found(name: str) -> bool:
    """Whether the name can be had under the hook, and is no stand-in."""
    head, _, rest = name.partition(".")
    path = f"{OWNERS[head]}.{rest}" if head in OWNERS else name
    value: Any = _facade.get("torch")
    for part in path.split(".")[1:]:
        try:
            value = getattr(value, part)
        except Exception:
            return False
        if isinstance(value, _facade.Facade) and not value._tesserack_targets:
            return False
    return True


def main() -> None:
    """Print the share that is there, then what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--all", action="store_true", help="count every area")
    arguments = parser.parse_args()
    with arguments.table.open() as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] != "missing"]
    rows = [row for row in rows if is_counted(row["name"], arguments.all)]
    with compat.enable():
        known = {row["name"]: found(row["name"]) for row in rows}
    uses = {row["name"]: int(row["uses"] or 0) for row in rows}
    there = sum(count for name, count in uses.items() if known[name])
    print(f"tesserack {tesserack.__version__}: {there} of {sum(uses.values())} uses, {there / sum(uses.values()):.2%}")
    for row in sorted(rows, key=lambda row: -uses[row["name"]]):
        if not known[row["name"]]:
            print(f"{uses[row['name']]:6d}  {row['kind']:14s} {row['name']}")


if __name__ == "__main__":
    main()
