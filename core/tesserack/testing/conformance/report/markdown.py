"""A short report for documentation: levels, areas, and dtypes by groups of operators that fare alike.

``python -m tesserack.testing.conformance.report.markdown report.json ... > page.md`` makes one page of one run, or of
several that tested areas of the same device one by one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tesserack.testing.conformance.areas import LEVELS
from tesserack.testing.conformance.results import Case, Results

__all__ = ["merged", "to_markdown"]

_DTYPES = ("float64", "float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
_RANK = {"skipped": 0, "passed": 1, "xfailed": 2, "failed": 3}
_MARKS = {"skipped": "–", "passed": "✓", "xfailed": "x", "failed": "✗"}
_AREAS = ("operators", "required")
_FIELDS = ("id", "area", "outcome", "message", "seconds")


def merged(reports: Sequence[dict[str, Any]]) -> Results:
    """The results that several reports of one device hold; of areas tested twice, the later ones.

    Raises:
        ValueError: where the devices differ, or a report is of a quick or filtered run: it would pass for whole areas.
    """
    devices = {report["device"] for report in reports}
    if len(devices) != 1:
        raise ValueError(f"merged: expected reports of one device, got {', '.join(sorted(devices)) or 'none'}")
    if any(report.get("sampled") for report in reports):
        raise ValueError(
            "merged: expected reports of whole areas, got one of a quick or filtered run; try --areas alone"
        )
    cases: dict[str, Case] = {}
    for report in reports:
        for found in report["cases"]:
            rest = {key: value for key, value in found.items() if key not in _FIELDS}
            told = (found["id"], found["area"], found["outcome"], found["message"], found["seconds"])
            cases[found["id"]] = Case(*told, rest)
    return Results(reports[-1]["environment"], list(cases.values()))


def to_markdown(results: Results) -> str:
    """The page, which has no heading of its own level 1."""
    versions = results.environment["versions"]
    lines = [
        f"{versions.get('hardware', results.device)}, {versions['system']}, Tesserack {versions['tesserack']}, "
        f"{results.environment['date'][:10]}. Level reached: **{results.level or 'none'}**.",
        "",
        "| Area | Level | Passed | Failed | Expected | Skipped |",
        "|---|---|---|---|---|---|",
    ]
    for summary in results.areas():
        counts = [summary.counts[key] for key in ("passed", "failed", "xfailed", "skipped")] if summary.ran else []
        cells = " | ".join(map(str, counts)) if counts else "not run | | |"
        lines.append(f"| {summary.area.name} | {summary.area.level} | {cells} |")
    for level in LEVELS:
        if obstacles := results.obstacles(level):
            lines += ["", f"In the way of *{level}*: {'; '.join(obstacles)}."]
            break
    lines += ["", "✓ right, – not tried (the operator does not take it), ✗ wrong, x wrong as expected", ""]
    lines += ["| Operators | " + " | ".join(_DTYPES) + " |", "|---" * (len(_DTYPES) + 1) + "|"]
    groups = _groups(results)
    for pattern, names in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        lines.append(f"| {', '.join(f'`{name}`' for name in sorted(names))} | {' | '.join(pattern)} |")
    return "\n".join(lines) + "\n"


def _groups(results: Results) -> dict[tuple[str, ...], list[str]]:
    """Operators by what became of each dtype."""
    table: dict[str, dict[str, str]] = {}
    for case in results.cases:
        dtype = case.properties.get("dtype")
        if case.area not in _AREAS or dtype not in _DTYPES or "op" not in case.properties:
            continue
        row = table.setdefault(case.properties["op"], {})
        if dtype not in row or _RANK[case.outcome] > _RANK[row[dtype]]:
            row[dtype] = case.outcome
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, row in table.items():
        pattern = tuple(_MARKS[row[dtype]] if dtype in row else "–" for dtype in _DTYPES)
        groups.setdefault(pattern, []).append(name)
    return groups


if __name__ == "__main__":
    sys.stdout.write(to_markdown(merged([json.loads(Path(name).read_text()) for name in sys.argv[1:]])))
