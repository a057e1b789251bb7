"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from tesserack.testing.conformance.areas import LEVELS
from tesserack.testing.conformance.findings.ways import WAYS, suggestions, ways
from tesserack.testing.conformance.report.matrix import matrix
from tesserack.testing.conformance.results import OUTCOMES, Case, Results

__all__ = ["page"]

_HERE = Path(__file__).parent
_MARKS = {"passed": "p", "failed": "f", "xfailed": "x", "skipped": "s"}
_SWITCHES = ("streams", "events", "peer_copies", "host_memory", "own_allocator")
_WORST = 25
_SHOWN_CAUSES = 100
_SHOWN_CASES = 50


def page(results: Results) -> str:
    """The report as HTML."""
    versions = results.environment["versions"]
    parts = {
        "title": escape(f"{results.device}: {results.level or 'does not boot'} (Tesserack conformance)"),
        "style": (_HERE / "page.css").read_text(encoding="utf-8"),
        "script": (_HERE / "page.js").read_text(encoding="utf-8"),
        "partial": " · a quick or filtered run" if results.partial else "",
        "device": escape(results.device),
        "hardware": escape(versions.get("hardware", "")),
        "ladder": "".join(_rung(results, level) for level in LEVELS),
        "tiles": _tiles(results),
        "areas": _areas(results),
        "failures": _failures(results),
        "coverage": matrix(results),
        "errors": _errors(results),
        "timings": _timings(results),
        "expected": _expected(results),
        "fallbacks": _fallbacks(results),
        "ways": _ways(results),
        "waits": _waits(results),
        "skips": _skips(results),
        "environment": _environment(results),
    }
    sections = {"Areas": "areas", "Coverage": "coverage"}
    optional = ("failures", "ways", "errors", "timings", "expected", "fallbacks", "waits", "skips")
    titles = (
        "Failures",
        "Kernels",
        "Worst errors",
        "Timings",
        "Expected failures",
        "Help from the cpu",
        "Waits",
        "Skipped",
    )
    sections |= {title: part for title, part in zip(titles, optional, strict=True) if parts[part]}
    sections["Environment"] = "environment"
    parts["nav"] = "".join(f'<a href="#{anchor}">{title}</a>' for title, anchor in sections.items())
    return Template((_HERE / "page.html").read_text(encoding="utf-8")).substitute(parts)


def _rung(results: Results, level: str) -> str:
    obstacles = results.obstacles(level)
    listed = "".join(f"<li>{escape(text)}</li>" for text in obstacles[:6])
    if len(obstacles) > 6:
        listed += f"<li>and {len(obstacles) - 6} more</li>"
    mark, kind = ("✗", "no") if obstacles else ("✓", "yes")
    why = f"<ul>{listed}</ul>" if obstacles else ""
    sampled = " <small>as far as it was tried</small>" if results.partial and not obstacles else ""
    return f'<li class="{kind}"><b>{mark} {level}{sampled}</b>{escape(LEVELS[level])}{why}</li>'


def _tiles(results: Results) -> str:
    words = {"passed": "passed", "failed": "failed", "xfailed": "expected failures", "skipped": "skipped"}
    tiles = [
        (f"{results.count(outcome):,}", words[outcome], outcome == "failed" and results.count(outcome))
        for outcome in OUTCOMES
    ]
    operators = {c.properties["op"] for c in results.cases if c.area in ("operators", "required") and _has_op(c)}
    tiles += [(f"{len(operators):,}", "operators", False), (_duration(results.seconds), "of tests", False)]
    return "".join(
        f'<div class="tile{" bad" if bad else ""}"><b>{value}</b><span>{label}</span></div>'
        for value, label, bad in tiles
    )


def _has_op(case: Case) -> bool:
    return "op" in case.properties


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _areas(results: Results) -> str:
    rows = []
    for summary in results.areas():
        total = summary.counts.total()
        bar = "".join(
            f'<i class="{_MARKS[o]}" style="width:{100 * summary.counts[o] / total:.2f}%"></i>'
            for o in OUTCOMES
            if summary.counts[o]
        )
        cells = "".join(f'<td class="n">{summary.counts[o] or ""}</td>' for o in OUTCOMES)
        rows.append(
            f"<tr><td><b>{summary.area.name}</b><br><small>{escape(summary.area.title)}</small></td>"
            f"<td>{summary.area.level}</td><td><div class=bar>{bar}</div></td>{cells}"
            f'<td class="n">{summary.seconds:.1f} s</td></tr>'
        )
    numbers = "".join(f'<th class="n">{name}</th>' for name in ("passed", "failed", "expected", "skipped", "time"))
    return _table(f"<th>area</th><th>level</th><th></th>{numbers}", rows)


def _table(head: str, rows: Iterable[str], kind: str = "") -> str:
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _section(anchor: str, title: str, note: str, body: str) -> str:
    return f'<section id="{anchor}"><h2>{title}</h2><p class="note">{note}</p>{body}</section>' if body else ""


def _failures(results: Results) -> str:
    found, body = results.causes(), ""
    for cause in found[:_SHOWN_CAUSES]:
        listed = "".join(f"<li><code>{escape(case.id)}</code></li>" for case in cause.cases[:_SHOWN_CASES])
        count = f" <b>× {len(cause.cases)}</b>" if len(cause.cases) > 1 else ""
        body += (
            f"<details><summary>{escape(cause.title[:300])}{count}<code>{escape(cause.command)}</code></summary>"
            f"<pre>{escape(cause.cases[0].message[:6000])}</pre><ul>{listed}</ul></details>"
        )
    more = " The first of them; the others stand in report.json." if len(found) > _SHOWN_CAUSES else ""
    title = f"Failures ({len(results.failures())}, of {len(found)} causes)"
    return _section("failures", title, f"What went wrong, by cause, with a command that repeats one case.{more}", body)


def _ways(results: Results) -> str:
    found = ways(results)
    if not found:
        return ""
    rows = []
    for way, means in WAYS.items():
        names = [name for name, taken in found.items() if taken == way]
        if names:
            cells = f'<td>{means}</td><td class="n">{len(names)}</td>'
            rows.append(f"<tr><td><b>{way}</b></td>{cells}<td>{escape(', '.join(names))}</td></tr>")
    head = '<th>way</th><th>means</th><th class="n">operators</th><th>which</th>'
    advice = "".join(f"<li>{escape(line)}</li>" for line in suggestions(results))
    nexts = f"<h3>Optimise this next</h3><ol>{advice}</ol>" if advice else ""
    return _section("ways", "Kernels", "How the device comes to its results.", _table(head, rows) + nexts)


def _waits(results: Results) -> str:
    counts: Counter[str] = Counter()
    for case in results.cases:
        counts[case.properties.get("op", case.area)] += case.properties.get("waits", 0)
    rows = [f'<tr><td><code>{escape(n)}</code></td><td class="n">{c}</td></tr>' for n, c in counts.most_common() if c]
    note = "Operators that made the host wait for the device, over all their tests."
    return _section("waits", "Waits", note, _table('<th>operator</th><th class="n">waits</th>', rows) if rows else "")


def _errors(results: Results) -> str:
    cases = [c for c in results.cases if _has_op(c) and c.properties.get("error") and c.outcome == "passed"]
    cases = [c for c in cases if math.isfinite(c.properties["error"])]
    worst = sorted(cases, key=lambda c: (-c.properties.get("ulp", 0.0), -c.properties["error"]))[:_WORST]
    rows = [
        f"<tr><td><code>{escape(c.properties['op'])}</code></td><td>{escape(c.properties['dtype'])}</td>"
        f"<td>{escape(c.properties['direction'])}</td>"
        f'<td class="n">{c.properties["error"]:.1e}</td><td class="n">{_ulp(c.properties.get("ulp"))}</td></tr>'
        for c in worst
    ]
    head = '<th>operator</th><th>dtype</th><th>direction</th><th class="n">relative error</th><th class="n">ulp</th>'
    note = f"The {_WORST} largest among tests that passed, by units in the last place of the dtype."
    return _section("errors", "Worst errors", note, _table(head, rows) if rows else "")


def _ulp(ulp: float | None) -> str:
    if ulp is None:
        return ""
    return f"{ulp:,.1f}" if ulp < 1e5 else f"{ulp:.1e}"


def _timings(results: Results) -> str:
    alone = results.device == "cpu"
    timed = [(t, case.properties["direction"]) for case in results.cases for t in case.properties.get("timings", [])]
    rows = [_timing(timing, direction, alone) for timing, direction in timed]
    head = f'<th>operation</th><th>direction</th><th class="n">{escape(results.device)}</th>'
    note = "float32, the fastest of a few calls, waiting for the device after each."
    if not alone:
        head += '<th class="n">cpu</th><th class="n">speed</th><th>slower · quicker than the cpu</th>'
        note += " The line marks the speed of the cpu backend."
    title = "Timings" if alone else "Timings against cpu"
    return _section("timings", title, note, _table(head, rows) if rows else "")


def _timing(timing: dict[str, Any], direction: str, alone: bool) -> str:
    cells = f'<td>{escape(timing["name"])}</td><td>{direction}</td><td class="n">{_time(timing["device"])}</td>'
    if alone:
        return f"<tr>{cells}</tr>"
    ratio = timing["cpu"] / timing["device"]
    share = max(-50.0, min(50.0, 50 * math.log(ratio) / math.log(64)))
    kind, left, width = ("quick", 50.0, share) if share >= 0 else ("slow", 50 + share, -share)
    return (
        f'<tr>{cells}<td class="n">{_time(timing["cpu"])}</td><td class="n">{ratio:.2f}×</td>'
        f'<td><div class="ratio"><i class="{kind}" style="left:{left:.1f}%;width:{width:.1f}%"></i></div></td></tr>'
    )


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _expected(results: Results) -> str:
    rows = [
        f"<tr><td><code>{escape(case.id)}</code></td><td>{escape(case.message)}</td></tr>"
        for case in results.cases
        if case.outcome == "xfailed"
    ]
    rows += [
        f"<tr><td><code>{escape(text)}</code></td><td>names no test: remove the line</td></tr>"
        for text in results.unused
    ]
    note = "Tests that failed as the vendor's file, or the core's list of known gaps, says they do."
    return _section("expected", "Expected failures", note, _table("<th>test</th><th>reason</th>", rows) if rows else "")


def _fallbacks(results: Results) -> str:
    helped: dict[str, Counter[str]] = {}
    for case in results.cases:
        for kernel in case.properties.get("fallbacks", {}):
            helped.setdefault(kernel, Counter())[case.properties.get("op", case.area)] += 1
    rows = []
    for kernel, operators in sorted(helped.items(), key=lambda item: -item[1].total()):
        listed = ", ".join(name for name, _ in operators.most_common(12)) + (", …" if len(operators) > 12 else "")
        count = f'<td class="n">{operators.total()}</td>'
        rows.append(f"<tr><td><code>{escape(kernel)}</code></td>{count}<td>{escape(listed)}</td></tr>")
    note = "Kernels that the backend lacks or declines, which therefore ran on the cpu with copies there and back."
    head = '<th>kernel</th><th class="n">tests</th><th>for</th>'
    return _section("fallbacks", "Help from the cpu", note, _table(head, rows) if rows else "")


def _skips(results: Results) -> str:
    reasons = Counter((c.message, c.area) for c in results.cases if c.outcome == "skipped")
    rows = [
        f"<tr><td>{escape(reason)}</td><td>{area}</td><td class=n>{count}</td></tr>"
        for (reason, area), count in reasons.most_common()
    ]
    note = "What does not apply to this device, or could not be tried here."
    head = '<th>reason</th><th>area</th><th class="n">tests</th>'
    return _section("skips", "Skipped", note, _table(head, rows) if rows else "")


def _environment(results: Results) -> str:
    facts = {"date": results.environment["date"], **results.environment["versions"]}
    capabilities = results.environment["capabilities"]
    for name in ("package", "package_version", "dtypes", "max_ndim", "device_count", *_SWITCHES, "kernels", "missing"):
        value = capabilities.get(name)
        facts[name.replace("_", " ")] = ", ".join(map(str, value)) if isinstance(value, list | dict) else str(value)
    rows = [f"<tr><td>{escape(k)}</td><td>{escape(str(v)) or 'none'}</td></tr>" for k, v in facts.items()]
    return f'<div class="scroll"><table><tbody>{"".join(rows)}</tbody></table></div>'
