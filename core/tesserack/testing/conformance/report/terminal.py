"""The table of a run, on a terminal."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tesserack.testing.conformance.areas import LEVELS
from tesserack.testing.conformance.findings.ways import WAYS, suggestions, ways
from tesserack.testing.conformance.results import Results

__all__ = ["show"]

_SHOWN_CAUSES = 12
_STYLES = {"passed": "green", "failed": "bold red", "xfailed": "yellow", "skipped": "dim"}


def show(console: Console, results: Results, level: str) -> None:
    """The table of areas, the failures, the level reached and what stands in the way of the next."""
    console.print(_table(results))
    _show_failures(console, results)
    for line in results.unused if not results.partial else []:
        console.print(f"[red]expected failure that names no test:[/] {escape(line)}; remove the line")
    _show_ways(console, results)
    _show_level(console, results, level)


def _table(results: Results) -> Table:
    table = Table(title=f"Conformance of {results.device}", title_justify="left")
    table.add_column("area")
    table.add_column("level", style="dim")
    for outcome in _STYLES:
        table.add_column({"xfailed": "expected"}.get(outcome, outcome), justify="right")
    table.add_column("time", justify="right", style="dim")
    for summary in results.areas():
        if summary.ran:
            counts = [
                f"[{style}]{summary.counts[outcome]}[/]" if summary.counts[outcome] else ""
                for outcome, style in _STYLES.items()
            ]
            table.add_row(summary.area.name, summary.area.level, *counts, f"{summary.seconds:.1f} s")
    return table


def _show_failures(console: Console, results: Results) -> None:
    found = results.causes()
    for cause in found[:_SHOWN_CAUSES]:
        console.print(f"[bold red]✗[/] {escape(cause.title)}", highlight=False)
        if len(cause.cases) > 1:
            names = cause.operators
            of = f", of {', '.join(names[:6])}{', …' if len(names) > 6 else ''}" if names else ""
            console.print(f"  and {len(cause.cases) - 1} more that say the same{escape(of)}", highlight=False)
        console.print(f"  [dim]{escape(cause.command)}[/]", highlight=False, soft_wrap=True)
    if len(found) > _SHOWN_CAUSES:
        rest = sum(len(cause.cases) for cause in found[_SHOWN_CAUSES:])
        console.print(f"  and {rest} failures of other causes: see the report (--report DIR)")


def _show_ways(console: Console, results: Results) -> None:
    counts = Counter(ways(results).values())
    if counts:
        told = ", ".join(f"{counts[way]} {way}" for way in WAYS if counts[way])
        console.print(f"operators: {told}", highlight=False)
    for line in suggestions(results)[:3]:
        console.print(f"optimise next: {escape(line)}", highlight=False)


def _show_level(console: Console, results: Results, wanted: str) -> None:
    note = " (of a part of the tests)" if results.partial else ""
    console.print(f"level: [bold]{results.level or 'none'}[/]{note}", highlight=False)
    order = [*LEVELS]
    following = order[order.index(results.level) + 1] if results.level not in (None, order[-1]) else order[0]
    if results.level == order[-1] or (results.level and order.index(following) > order.index(wanted)):
        return
    console.print(f"not {following}: {escape('; '.join(results.obstacles(following)))}", highlight=False)
