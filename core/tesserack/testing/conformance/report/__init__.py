"""Reports of a run: a page, the same as data, and a badge."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from tesserack.testing.conformance.report.badge import badge
from tesserack.testing.conformance.report.page import page
from tesserack.testing.conformance.results import Results

__all__ = ["badge", "page", "to_json", "write_json", "write_report"]


def write_report(results: Results, folder: Path) -> None:
    """Write report.html, report.json and badge.svg into a folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.html").write_text(page(results), encoding="utf-8")
    write_json(results, folder / "report.json")
    (folder / "badge.svg").write_text(badge(results), encoding="utf-8")


def write_json(results: Results, path: Path) -> None:
    """Everything that was found, one file."""
    path.write_text(to_json(results), encoding="utf-8")


def to_json(results: Results) -> str:
    """Everything that was found, as text."""
    return json.dumps(_finite(results.to_dict()), indent=1)


def _finite(value: Any) -> Any:
    """Infinities and NaN as text, which JSON has no numbers for."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value
