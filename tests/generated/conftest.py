"""Known gaps of generated tests: data with reasons, in the form of a vendor's expected failures; a closed gap fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from tesserack.testing import expected_failures

HERE = Path(__file__).parent
GAPS = HERE / "known_gaps.txt"


def read_table(path: Path) -> dict[str, str]:
    """``name: reason`` on each line that is not a comment."""
    lines = path.read_text().splitlines()
    pairs = (line.split(": ", 1) for line in lines if line.strip() and not line.startswith("#"))
    return {pattern.strip(): reason.strip() for pattern, reason in pairs}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Expect the tests named in the list to fail, strictly."""
    entries = expected_failures.read(GAPS)
    matched = expected_failures.apply((item for item in items if HERE in item.path.parents), entries)
    config.stash[UNUSED] = [entry.where for entry in entries if entry not in {e for _, e in matched}]


UNUSED = pytest.StashKey[list[str]]()


@pytest.fixture
def unused_gaps(request: pytest.FixtureRequest) -> list[str]:
    """Lines of the list that name no collected test."""
    return request.config.stash[UNUSED]


@pytest.fixture
def reasons_without_samples() -> dict[str, str]:
    """Operators that have no sample calls, and why."""
    return read_table(HERE / "no_samples.txt")
