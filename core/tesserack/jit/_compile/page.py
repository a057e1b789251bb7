"""What became of a function, as a page: a picture of each graph, and the program's lines that are none."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from tesserack.jit._compile.picture import picture

if TYPE_CHECKING:
    from tesserack.jit._compile.report import ExplainOutput

__all__ = ["page"]

_STYLE = """body{font:15px/1.5 sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#0f172a}
pre{background:#f8fafc;padding:.8em;overflow:auto;border:1px solid #e2e8f0;border-radius:6px}
mark{background:#fecaca}.picture{overflow:auto;border:1px solid #e2e8f0;border-radius:6px}
table{border-collapse:collapse}td{padding:.2em 1em .2em 0}"""
_AROUND = 3  # lines shown before and after one that is the reason
_PLACE = re.compile(r"((?:[A-Za-z]:)?[^:\n]+):(\d+) \(")


def _source(reason: str) -> str:
    """The program's lines around the one that a reason names; empty if it names none that can be read."""
    found = _PLACE.search(reason)
    if found is None:
        return ""
    file, number = found.group(1), int(found.group(2))
    shown = []
    for at in range(max(number - _AROUND, 1), number + _AROUND + 1):
        text = escape(linecache.getline(file, at).rstrip("\n"))
        if text or at == number:
            line = f"{at:5} {text}"
            shown.append(f"<mark>{line}</mark>" if at == number else line)
    return f"<pre>{chr(10).join(shown)}</pre>"


def _list(title: str, items: Iterable[str]) -> str:
    rows = "\n".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<h2>{title}</h2>\n<ul>\n{rows}\n</ul>" if rows else ""


def _verdict(told: ExplainOutput) -> str:
    if told.graph_count and not told.graph_break_count:
        return "The function is a graph: it runs in its place wherever what is compared is as it was."
    if not told.graph_count:
        return "The function runs as plain Python, as if it were not compiled: no graph would do what it does."
    return "Some calls of the function run as a graph, others as plain Python."


def page(told: ExplainOutput, title: str) -> str:
    """The page as HTML, which loads nothing from elsewhere."""
    numbers = {"graphs": told.graph_count, "operators": told.op_count, "reasons": told.graph_break_count}
    rows = "".join(f"<tr><td>{name}</td><td>{number}</td></tr>" for name, number in numbers.items())
    parts = [f"<h1>{escape(title)}</h1>", f"<p>{_verdict(told)}</p>", f"<table>{rows}</table>"]
    if told.break_reasons:
        parts.append("<h2>Why it is plain Python</h2>")
        parts += [f"<p>{escape(found.reason)}</p>{_source(found.reason)}" for found in told.break_reasons]
    for number, graph in enumerate(told.graphs, 1):
        drawn = picture(graph.graph)
        parts.append(f'<h2>Graph {number}</h2>\n<div class="picture">{drawn}</div>')
        parts.append(f"<pre>{escape(graph.code.strip())}</pre>")
    parts.append(_list("Planned", told.planned))
    parts.append(_list("Compared at each call", told.out_guards or ()))
    body = "\n".join(part for part in parts if part)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )
