"""The page of what became of a function: words, lines, and a picture whose parts do not lie on each other."""

from __future__ import annotations

import html.parser
import itertools
import re
from typing import Any
from xml.etree import ElementTree

import tesserack as ts
from tesserack import fx
from tesserack.jit._compile.picture import picture

SVG = "{http://www.w3.org/2000/svg}"


class Tags(html.parser.HTMLParser):
    """Every tag is closed, and nothing is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert not {"src", "href", "onload"} & {name for name, _ in attrs} and tag != "script"
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def well_formed(text: str) -> None:
    tags = Tags()
    tags.feed(text)
    assert not tags.open


def test_a_picture_has_a_box_for_each_node_and_a_line_for_each_use():
    def branches(x, y):
        a, b, c = x.sin(), x.cos() * y, y.exp()
        return (a + b) @ c.t() + a.sum(), [b, c]

    graph = fx.symbolic_trace(branches).graph
    root = ElementTree.fromstring(picture(graph))
    boxes = [tuple(float(r.get(k)) for k in ("x", "y", "width", "height")) for r in root.iter(f"{SVG}rect")]
    assert len(boxes) == len(graph.nodes)
    uses = sum(len(node.all_input_nodes) for node in graph.nodes)
    drawn = [p.get("d") for p in root.iter(f"{SVG}path") if "marker-end" in p.attrib]
    assert len(drawn) == uses
    for (x, y, w, h), (u, v, w2, h2) in itertools.combinations(boxes, 2):
        assert x + w <= u or u + w2 <= x or y + h <= v or v + h2 <= y
    assert max(x + w for x, _, w, _ in boxes) <= float(root.get("width")) and min(x for x, *_ in boxes) >= 0
    for line in drawn:  # downwards: what is read stands above
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", line)]
        assert numbers[1] < numbers[-1]


def test_a_page_shows_graphs_and_what_is_compared(tmp_path):
    net = ts.nn.Sequential(ts.nn.Linear(3, 4), ts.nn.ReLU())
    told = ts.compiler.explain(lambda x: net(x) < 1)(ts.ones(2, 3))
    text = told.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == text
    well_formed(text)
    assert "is a graph" in text and "addmm" in text and "float32[2, 4]" in text
    assert "argument 0: tesserack.float32(2, 3) on cpu" in text and "&lt;" in text  # names are escaped


def test_a_page_shows_the_line_that_keeps_a_function_python():
    seen: list[float] = []

    def logs(x: Any) -> Any:
        seen.append(x.sum().item())  # this line
        return x * 2 + 1

    text = ts.compiler.explain(logs)(ts.ones(2)).to_html()
    well_formed(text)
    (marked,) = re.findall("<mark>(.*)</mark>", text)
    assert "# this line" in marked and "runs as plain Python" in text and "<svg" not in text
