"""The badge: the level in a small picture."""

from __future__ import annotations

from html import escape

from tesserack.testing.conformance.results import Results

__all__ = ["badge"]

_COLOURS = {"complete": "#2f9e6e", "trains": "#3b7dd8", "boots": "#c98a1b", None: "#8a8f98"}
_SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}">
<title>{label}</title>
<clipPath id="round"><rect width="{width}" height="20" rx="4"/></clipPath>
<g clip-path="url(#round)"><rect width="{left}" height="20" fill="#30343b"/>
<rect x="{left}" width="{right}" height="20" fill="{colour}"/></g>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="8" y="14" textLength="{left_text}">{name}</text>
<text x="{right_at}" y="14" textLength="{right_text}">{level}</text></g></svg>
"""


def badge(results: Results) -> str:
    """An SVG picture such as "tesserack acme | trains"."""
    name, level = f"tesserack {results.device}", results.level or "does not boot"
    if results.partial and results.level:
        level += " (quick)"
    left_text, right_text = _width(name), _width(level)
    left, right = left_text + 16, right_text + 16
    return _SVG.format(
        width=left + right,
        left=left,
        right=right,
        left_text=left_text,
        right_text=right_text,
        right_at=left + 8,
        colour=_COLOURS[results.level],
        name=escape(name),
        level=escape(level),
        label=escape(f"{name}: {level}"),
    )


def _width(text: str) -> int:
    """About how wide the text is at 11 pixels."""
    return round(6.6 * len(text))
