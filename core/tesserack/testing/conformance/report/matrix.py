"""The coverage matrix: operators by dtypes, values and gradients."""

from __future__ import annotations

from html import escape
from typing import Any

from tesserack.testing import cases
from tesserack.testing.conformance.results import Case, Results

__all__ = ["matrix"]

_DTYPES = ("float64", "float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
_RANK = {"failed": 3, "xfailed": 2, "passed": 1, "skipped": 0}
_MARKS = {"passed": "p", "failed": "f", "xfailed": "x", "skipped": "s"}
_AREAS = ("operators", "required", "gradients")

assert set(_DTYPES) == set(cases.DTYPES)


def matrix(results: Results) -> str:
    """The table."""
    table: dict[str, dict[tuple[str, str], Case]] = {}
    for case in results.cases:
        if case.area not in _AREAS or case.properties.get("dtype") not in _DTYPES:
            continue
        at = (case.properties["dtype"], case.properties["direction"])
        row = table.setdefault(case.properties["op"], {})
        if at not in row or _RANK[case.outcome] > _RANK[row[at].outcome]:
            row[at] = case
    head = "<th>operator</th>" + "".join(f'<th class="c">{dtype}</th>' for dtype in _DTYPES)
    rows = "".join(_row(name, table[name]) for name in sorted(table))
    return f'<table class="matrix"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def _row(name: str, row: dict[tuple[str, str], Case]) -> str:
    cells = "".join(_cell(row, dtype) for dtype in _DTYPES)
    trouble = any(c.outcome in ("failed", "xfailed") or c.properties.get("fallbacks") for c in row.values())
    mark = ' data-trouble="1"' if trouble else ""
    return f'<tr data-name="{escape(name.lower())}"{mark}><td>{escape(name)}</td>{cells}</tr>'


def _cell(row: dict[tuple[str, str], Case], dtype: str) -> str:
    forward, backward = row.get((dtype, "forward")), row.get((dtype, "backward"))
    second = row.get((dtype, "second"))
    if backward and second and _RANK[second.outcome] > _RANK[backward.outcome]:
        backward = second
    if not forward and not backward:
        return "<td></td>"
    return f'<td><div class="cell">{_half(forward, "values")}{_half(backward, "gradient")}</div></td>'


def _half(case: Case | None, what: str) -> str:
    if case is None:
        return "<i></i>"
    helped = case.properties.get("fallbacks")
    mark = "h" if helped and case.outcome == "passed" else _MARKS[case.outcome]
    return f'<i class="{mark}" title="{escape(_hint(case, what, helped))}"></i>'


def _hint(case: Case, what: str, helped: dict[str, Any] | None) -> str:
    parts = [f"{what}: {case.outcome}"]
    if case.properties.get("error"):
        parts.append(f"error {case.properties['error']:.1e}")
    if case.properties.get("ulp"):
        parts.append(f"{case.properties['ulp']:.1f} ulp")
    if helped:
        parts.append(f"on the cpu: {', '.join(helped)}")
    if case.outcome in ("failed", "xfailed"):
        parts.append(case.title[:160])
    return ", ".join(parts)
