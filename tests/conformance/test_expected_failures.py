"""The vendor's file of expected failures: what a line may say, and how strictly it is taken."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from tesserack.testing import expected_failures
from tesserack.testing.expected_failures import parse_line

NODE = "lib/tesserack/testing/conformance/test_operators.py::test_values[max_pool2d/a[0]-float32]"


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("test_values[max_pool2d/a[0]-float32]", True),
        ("test_operators.py::test_values[max_pool2d/a[0]-float32]", True),
        ("test_values[max_pool?d*-float32]", True),
        ("test_values*", True),
        ("*", True),
        ("test_values", False),
        ("test_values[max.pool2d/a[0]-float32]", False),
        ("test_copies.py::test_values*", False),
        ("test_values[max_pool2d/a[0]-float64]", False),
    ],
)
def test_patterns(pattern: str, matches: bool) -> None:
    """Brackets, dots and slashes stand for themselves; folders in front of the file do not matter."""
    assert parse_line(f"{pattern}  # why", "file:1").matches(NODE) is matches


def test_tags() -> None:
    """Dates and declared lacks, in any order, are no part of the reason."""
    entry = parse_line("test_a*  # known issue #12 [lacks=float64] [until=2027-02-03]", "acme.txt:7")
    assert (entry.reason, entry.lacks, entry.until, entry.where) == (
        "known issue #12",
        "float64",
        datetime.date(2027, 2, 3),
        "acme.txt:7",
    )
    assert not entry.expired(datetime.date(2027, 2, 2))
    assert entry.expired(datetime.date(2027, 2, 3))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("test_a*", "acme.txt:3: expected 'pattern  # reason"),
        ("test_a*  # ", "expected 'pattern"),
        ("# only a reason", "expected 'pattern"),
        ("test_a*  # why [until=soon]", r"expected a date such as \[until=2027-01-31\], got \[until=soon\]"),
        ("test_a*  # why [unitl=2027-01-31]", r"expected \[until=.*, got \[unitl"),
    ],
)
def test_malformed_lines_are_named(line: str, message: str) -> None:
    """File, line, what was expected and what was found."""
    with pytest.raises(ValueError, match=message):
        parse_line(line, "acme.txt:3")


def test_files(tmp_path: Path) -> None:
    """Comments and empty lines are skipped, but counted."""
    path = tmp_path / "acme.txt"
    path.write_text("# gaps of acme\n\ntest_a  # one\n   \ntest_b*  # two\n")
    assert [(e.where, e.reason) for e in expected_failures.read(path)] == [("acme.txt:3", "one"), ("acme.txt:5", "two")]


class Item:
    """What ``apply`` needs of a test."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid
        self.markers: list[Any] = []

    def add_marker(self, marker: Any) -> None:
        self.markers.append(marker)


def test_apply() -> None:
    """The first line that names a test counts; a dated one excuses until that day."""
    entries = [
        parse_line("test_a  # first [until=2027-01-31]", "f:1"),
        parse_line("test_*  # second", "f:2"),
    ]
    items = [Item(f"test_x.py::{name}") for name in ("test_a", "test_b", "other")]
    early = expected_failures.apply(items, entries, datetime.date(2027, 1, 30))
    assert [(item.nodeid[11:], entry.where) for item, entry in early] == [("test_a", "f:1"), ("test_b", "f:2")]
    assert [[m.name for m in item.markers] for item in items] == [["xfail"], ["xfail"], []]
    assert items[0].markers[0].kwargs == {"reason": "first (f:1)", "strict": True}
    late = [Item("test_x.py::test_a")]
    expected_failures.apply(late, entries, datetime.date(2027, 1, 31))
    assert [m.name for m in late[0].markers] == ["tesserack_expired"]
    assert late[0].markers[0].args == ("expected failure expired on 2027-01-31: first (f:1)",)
