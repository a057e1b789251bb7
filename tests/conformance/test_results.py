"""From outcomes to levels, and to reports."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.testing import conform
from tesserack.testing.conformance.areas import AREAS, LEVELS, areas_up_to
from tesserack.testing.conformance.gradients import compare
from tesserack.testing.conformance.report import write_report
from tesserack.testing.conformance.report.markdown import merged, to_markdown
from tesserack.testing.conformance.results import Results

ENVIRONMENT = {
    "event": "environment",
    "device": "acme",
    "date": "2026-11-21T00:00:00+00:00",
    "versions": {"tesserack": "0.1.0", "python": "3.12", "hardware": "Acme <NPU> & co", "system": "Linux"},
    "unavailable": None,
    "capabilities": {"dtypes": ["float32", "int64", "bool"], "max_ndim": 6, "streams": False},
}


def line(area: str, outcome: str = "passed", name: str = "test_x", **properties: Any) -> dict[str, Any]:
    """A result in the log of a run."""
    return {
        "event": "result",
        "id": f"some/folder/{AREAS[area].module}::{name}",
        "outcome": outcome,
        "message": f"{name} of <{area}>: {outcome}\nmore" if outcome != "passed" else "",
        "seconds": 0.25,
        "properties": {"area": area, "level": AREAS[area].level, **properties},
    }


def results(*changed: dict[str, Any], without: tuple[str, ...] = ()) -> Results:
    """A run in which every area has one test that passed, and these."""
    return Results.from_lines([ENVIRONMENT, *(line(area) for area in AREAS if area not in without), *changed])


def test_levels_build_on_each_other() -> None:
    """Each needs what the ones before need, and areas of its own."""
    counts = [len(areas_up_to(level)) for level in LEVELS]
    assert counts == sorted(set(counts))
    assert counts[-1] == len(AREAS)


@pytest.mark.parametrize("area", AREAS)
def test_a_failure_bars_the_levels_that_need_its_area(area: str) -> None:
    """And the level before is granted; the obstacle names the area."""
    order = [*LEVELS]
    found = results(line(area, "failed"))
    at = order.index(AREAS[area].level)
    assert found.level == (order[at - 1] if at else None)
    assert found.obstacles(AREAS[area].level) == [f"{area}: 1 of 2 tests failed"]


def test_all_passed() -> None:
    """Skips do not count against a device."""
    assert results().level == "complete"
    assert results(line("streams", "skipped")).level == "complete"


def test_what_was_not_run_is_not_granted() -> None:
    """An area without tests."""
    found = results(without=("training",))
    assert found.level == "boots"
    assert found.obstacles("trains") == ["training: not run"]


@pytest.mark.parametrize(
    ("excuse", "level"),
    [
        ({"where": "acme.txt:1", "lacks": None, "core": False}, "trains"),
        ({"where": "acme.txt:1", "lacks": "float64", "core": False}, "complete"),
        ({"where": "acme.txt:1", "lacks": "streams", "core": False}, "complete"),
        ({"where": "acme.txt:1", "lacks": "ndim8", "core": False}, "complete"),
        ({"where": "acme.txt:1", "lacks": "ndim5", "core": False}, "trains"),
        ({"where": "acme.txt:1", "lacks": "float32", "core": False}, "trains"),
        ({"where": "known_gaps.txt:1", "lacks": None, "core": True}, "complete"),
    ],
)
def test_complete_allows_only_declared_lacks(excuse: dict[str, Any], level: str) -> None:
    """An expected failure keeps a device from *complete* unless the device declares the lack or the core has it."""
    assert results(line("operators", "xfailed", excuse=excuse)).level == level


@pytest.mark.parametrize(
    ("changed", "level", "status"),
    [
        ((), None, 0),
        ((), "complete", 0),
        ((line("gradients", "failed"),), None, 1),
        ((line("gradients", "failed"),), "boots", 0),
        ((line("gradients", "failed"),), "trains", 1),
        ((line("operators", "xfailed"),), None, 0),
        ((line("operators", "xfailed"),), "complete", 1),
    ],
)
def test_exit_status(changed: tuple[dict[str, Any], ...], level: str | None, status: int) -> None:
    """Of the command: whether the level asked for is reached, or else whether nothing failed."""
    assert conform._status(results(*changed), level) == status


def test_exit_status_of_leftovers() -> None:
    """A line of expected failures that names no test fails a full run, not a part of one."""
    found = results()
    found.unused = ["acme.txt:1: test_gone"]
    assert conform._status(found, None) == 1
    found.partial = True
    assert conform._status(found, None) == 0


def test_reports_of_areas_become_one_page_and_samples_do_not() -> None:
    """The level of several runs is earned by all areas together, each of them whole."""

    def report(*areas: str, copies: str) -> dict[str, Any]:
        lines = [line(area, name=f"test_{area}") for area in areas]
        return Results.from_lines([ENVIRONMENT, *lines, line("copies", copies, "test_again")]).to_dict()

    half, rest = report(*[*AREAS][:9], copies="failed"), report(*[*AREAS][9:], copies="passed")
    assert merged([half]).level is None
    assert merged([half, rest]).level == "complete"
    assert "Level reached: **complete**" in to_markdown(merged([half, rest]))
    with pytest.raises(ValueError, match="of one device"):
        merged([half, {**rest, "device": "other"}])
    with pytest.raises(ValueError, match="quick or filtered"):
        merged([half, {**rest, "sampled": True}])


class Reader(HTMLParser):
    """Checks that tags are closed in order, and gathers the text."""

    VOID = ("meta", "input", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.links += [v for k, v in attrs if k in ("src", "href") and v]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data


def full_results() -> Results:
    """Something for every section of the page."""
    return results(
        line("operators", "failed", "test_values[conv2d-float32]", op="conv2d", dtype="float32", direction="forward"),
        line("operators", name="a", op="exp", dtype="float32", direction="forward", error=1e-7, ulp=1.5),
        line("gradients", name="b", op="exp", dtype="float64", direction="backward", fallbacks={"scan": 3}),
        line("gradients", "xfailed", "c", op="digamma", dtype="float64", direction="backward"),
        line("operators", "skipped", "d", op="exp", dtype="float64", direction="forward"),
        line(
            "sizes",
            name="e",
            op="matmul",
            dtype="float32",
            direction="forward",
            timings=[{"name": "matmul 256", "device": 1e-3, "cpu": 2e-3}],
        ),
        line("gradients", name="f", op="nan", dtype="float32", direction="backward", error=float("inf")),
    )


def test_report(tmp_path: Path) -> None:
    """A page that stands alone and escapes what it shows, the same as JSON, and a badge."""
    write_report(full_results(), tmp_path / "deep" / "folder")
    folder = tmp_path / "deep" / "folder"
    reader = Reader()
    reader.feed((folder / "report.html").read_text())
    assert reader.open == []
    assert all(link.startswith("#") for link in reader.links), "the page needs something else"
    for text in (
        "Acme <NPU> & co",
        "test_values[conv2d-float32] of <operators>: failed",
        "matmul 256",
        "2.00×",
        "scan",
    ):
        assert text in reader.text
    data = json.loads((folder / "report.json").read_text())
    assert data["level"] == "boots" or data["level"] == "trains"
    assert data["levels"]["complete"]["obstacles"] == [
        "operators: 1 of 4 tests failed",
        "gradients: 1 expected failures",
    ]
    assert len(data["cases"]) == len(AREAS) + 7
    assert data["areas"]["operators"] == {"passed": 2, "failed": 1, "skipped": 1, "seconds": 1.0}
    badge = ElementTree.fromstring((folder / "badge.svg").read_text())
    assert "tesserack acme: trains" in "".join(badge.itertext())


def test_page_marks_cells(tmp_path: Path) -> None:
    """The matrix says what happened to values and gradients of each dtype."""
    write_report(full_results(), tmp_path)
    page = (tmp_path / "report.html").read_text()
    row = re.search(r'<tr data-name="exp"[^>]*>(.*?)</tr>', page)
    assert row
    assert re.findall(r'<i class="(\w)"', row[1]) == ["s", "h", "p"]
    assert 'data-name="conv2d" data-trouble="1"' in page


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ([np.inf, 1.0, np.nan], None),
        ([np.inf, 2.0, np.nan], "element [1]: expected 1.0, got 2.0"),  # not measured by what is infinite
        ([-np.inf, 1.0, np.nan], "element [0]: expected inf, got -inf"),
        ([3.0, 1.0, np.nan], "element [0]: expected inf, got 3.0"),
        ([np.inf, 1.0, 0.0], "element [2]: expected nan, got 0.0"),
        ([np.inf, np.nan, np.nan], "element [1]: expected 1.0, got nan"),
    ],
)
def test_gradients_that_are_infinite_agree_with_their_like(found: list[float], wrong: str | None) -> None:
    problem, worst = compare([ts.tensor(found)], [ts.tensor([np.inf, 1.0, np.nan])], 1e-2)
    assert problem is None if wrong is None else problem is not None and wrong in problem
    assert (worst <= 1e-2) == (wrong is None)
