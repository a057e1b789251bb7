"""Failures that a vendor expects of a device: data with reasons, strict and, if dated, expiring.

Each line of the file is ``pattern  # reason``, where the pattern names tests as pytest prints them: ``*`` and ``?``
match any text and any character, everything else stands for itself; ``test_operators.py::`` in front is optional.
After the reason may stand ``[until=2027-01-31]``, from which day on the line excuses nothing, and ``[lacks=float64]``,
which says that the reason is something the device declares not to have.

>>> entry = parse_line("test_values[erfinv-float16]  # its table is too coarse [until=2027-03-01]", "acme.txt:1")
>>> entry.matches("test_operators.py::test_values[erfinv-float16]"), entry.reason, entry.until
(True, 'its table is too coarse', datetime.date(2027, 3, 1))
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Entry", "apply", "match", "parse_line", "read", "without_folders"]

_TAG = re.compile(r"\s*\[(\w+)=([^\]]*)\]\s*$")


@dataclass(frozen=True)
class Entry:
    """One line: which tests, why, until when, and where it stands."""

    pattern: str
    reason: str
    where: str
    until: datetime.date | None = None
    lacks: str | None = None
    core: bool = False

    def matches(self, node_id: str) -> bool:
        """Whether it names this test. Folders in front of the file's name do not matter."""
        test = without_folders(node_id)
        subject = test if "::" in self.pattern else test.partition("::")[2]
        return _regex(self.pattern).fullmatch(subject) is not None

    def expired(self, today: datetime.date) -> bool:
        """Whether its last day has passed."""
        return self.until is not None and today >= self.until


def without_folders(node_id: str) -> str:
    """``"test_x.py::test_y[z]"`` for a test anywhere."""
    path, separator, test = node_id.partition("::")
    return path.rsplit("/", 1)[-1] + separator + test


@functools.cache
def _regex(pattern: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(character, re.escape(character)) for character in pattern), re.DOTALL)


def parse_line(line: str, where: str, *, core: bool = False) -> Entry:
    """The entry on one line. ``ValueError`` saying what is wrong with it, and where."""
    pattern, separator, reason = line.partition("  #")
    if not separator:
        pattern, separator, reason = line.partition(" #")
    tags: dict[str, str] = {}
    while found := _TAG.search(reason):
        tags[found[1]] = found[2].strip()
        reason = reason[: found.start()]
    if not pattern.strip() or not reason.strip():
        raise ValueError(f"{where}: expected 'pattern  # reason [until=YYYY-MM-DD]', got {line.strip()!r}")
    unknown = sorted(tags.keys() - {"until", "lacks"})
    if unknown:
        raise ValueError(f"{where}: expected [until=YYYY-MM-DD] or [lacks=CAPABILITY], got [{unknown[0]}=...]")
    return Entry(pattern.strip(), reason.strip(), where, _date(tags.get("until"), where), tags.get("lacks"), core)


def _date(text: str | None, where: str) -> datetime.date | None:
    try:
        return None if text is None else datetime.date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{where}: expected a date such as [until=2027-01-31], got [until={text}]") from None


def read(path: Path, *, core: bool = False) -> list[Entry]:
    """All entries of a file. ``ValueError`` for malformed lines, ``FileNotFoundError`` if there is no such file."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return [
        parse_line(line, f"{path.name}:{number}", core=core)
        for number, line in lines
        if line.strip() and not line.lstrip().startswith("#")
    ]


def match(entries: Iterable[Entry], node_id: str) -> Entry | None:
    """The first entry that names a test."""
    return next((entry for entry in entries if entry.matches(node_id)), None)


def apply(items: Iterable[Any], entries: list[Entry], today: datetime.date | None = None) -> list[tuple[Any, Entry]]:
    """Expect the collected tests that entries name to fail, strictly; returns these tests with their entries."""
    import pytest

    today = today or datetime.date.today()
    matched = []
    for item in items:
        entry = match(entries, item.nodeid)
        if entry is None:
            continue
        matched.append((item, entry))
        text = f"{entry.reason} ({entry.where})"
        if entry.expired(today):
            item.add_marker(pytest.mark.tesserack_expired(f"expected failure expired on {entry.until}: {text}"))
        else:
            item.add_marker(pytest.mark.xfail(reason=text, strict=True))
    return matched
