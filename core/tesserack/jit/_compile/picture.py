"""A graph as a picture: its nodes in layers, each below what it reads, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from tesserack.fx.node import Node

__all__ = ["picture"]

_WIDTH, _HEIGHT, _GAP, _BETWEEN, _MARGIN = 168, 38, 22, 34, 16
_SWEEPS = 4  # over all layers: more change little
_FILLS = {"placeholder": "#dbeafe", "get_attr": "#f1f5f9", "output": "#dcfce7"}
_STEP = "#fef3c7"


def _layers(nodes: Sequence[Node]) -> list[list[Node]]:
    """Nodes by how far below the inputs they are; what is only held stands right above what reads it."""
    depth: dict[Node, int] = {}
    for node in nodes:
        depth[node] = max((depth[source] + 1 for source in node.all_input_nodes), default=0)
    for node in nodes:
        if node.op == "get_attr" and node.users:
            depth[node] = max(0, min(depth[user] for user in node.users) - 1)
    rows: list[list[Node]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for node in nodes:
        rows[depth[node]].append(node)
    return rows


def _ordered(rows: list[list[Node]]) -> None:
    """Sort each layer by where the neighbours are, down and up again, so that few lines cross."""
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        place = {node: _middle(k, row) for row in rows for k, node in enumerate(row)}
        for row in rows if down else reversed(rows):
            near = {n: [place[m] for m in (n.all_input_nodes if down else n.users)] for n in row}
            row.sort(key=lambda n: sum(near[n]) / len(near[n]) if near[n] else place[n])
            place.update((node, _middle(k, row)) for k, node in enumerate(row))


def _middle(k: int, row: Sequence[Node]) -> float:
    """Where the k-th of a centred row lies, in boxes from the middle."""
    return k - (len(row) - 1) / 2


def _described(node: Node) -> tuple[str, str]:
    """The two lines in a node's box: what it does, and what it gives."""
    meta = node.meta.get("tensor_meta")
    gives = f"{str(meta.dtype).rpartition('.')[2]}{[*map(int, meta.shape)]}" if hasattr(meta, "shape") else ""
    plain = node.op in ("placeholder", "output")
    target = node.name if plain else getattr(node.target, "__qualname__", None) or str(node.target)
    target = str(node.target) if hasattr(node.target, "overloadpacket") else target
    return target.removeprefix("aten.").removesuffix(".default"), gives


def _short(text: str, count: int = 23) -> str:
    return text if len(text) <= count else f"{text[: count - 1]}…"


def _box(node: Node, x: float, y: float) -> str:
    first, second = _described(node)
    told = escape(f"{node.format_node() or node.name}\n{node.stack_trace or ''}".strip())
    middle = x + _WIDTH / 2
    return (
        f'<g><title>{told}</title><rect x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" '
        f'fill="{_FILLS.get(node.op, _STEP)}" stroke="#64748b"/>'
        f'<text x="{middle:g}" y="{y + 16:g}" text-anchor="middle" font-weight="bold">{escape(_short(first))}</text>'
        f'<text x="{middle:g}" y="{y + 30:g}" text-anchor="middle" fill="#475569">{escape(_short(second))}</text></g>'
    )


def _line(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x, y), (to, below) = start, end
    bend = (below - y) / 2
    return (
        f'<path d="M{x:g} {y:g} C{x:g} {y + bend:g} {to:g} {below - bend:g} {to:g} {below:g}" fill="none" '
        'stroke="#94a3b8" marker-end="url(#arrow)"/>'
    )


def picture(graph: Any) -> str:
    """The SVG of a graph, which needs nothing else to be shown.

    >>> from tesserack import fx
    >>> text = picture(fx.symbolic_trace(lambda x: x.relu() + 1).graph)
    >>> text[:4], text.count("<rect"), text.count("<path d=")
    ('<svg', 4, 4)
    """
    rows = _layers([*graph.nodes])
    _ordered(rows)
    widest = max(len(row) for row in rows)
    width = widest * (_WIDTH + _GAP) - _GAP + 2 * _MARGIN
    height = len(rows) * (_HEIGHT + _BETWEEN) - _BETWEEN + 2 * _MARGIN
    corner = {
        node: (width / 2 + _middle(k, row) * (_WIDTH + _GAP) - _WIDTH / 2, _MARGIN + depth * (_HEIGHT + _BETWEEN))
        for depth, row in enumerate(rows)
        for k, node in enumerate(row)
    }
    lines = [
        _line((corner[source][0] + _WIDTH / 2, corner[source][1] + _HEIGHT), (x + _WIDTH / 2, y - 3))
        for node, (x, y) in corner.items()
        for source in node.all_input_nodes
    ]
    boxes = [_box(node, x, y) for node, (x, y) in corner.items()]
    arrow = (
        '<defs><marker id="arrow" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L6 3L0 6z" fill="#94a3b8"/></marker></defs>'
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" font-size="11" '
    return "\n".join([f'{head}font-family="sans-serif">', arrow, *lines, *boxes, "</svg>"])
