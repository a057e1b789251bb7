"""Known gaps of generated tests: data with reasons, one file for all devices and one for each; a closed gap fails."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def read_table(path: Path) -> dict[str, str]:
    """``pattern: reason`` on each line that is not a comment."""
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = (line.split(": ", 1) for line in lines if line.strip() and not line.startswith("#"))
    return {pattern.strip(): reason.strip() for pattern, reason in pairs}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Expect the tests named in the tables to fail, strictly."""
    device = str(config.getoption("--tesserack-device")).split(":")[0]
    gaps = read_table(HERE / "known_gaps" / "all.txt") | read_table(HERE / "known_gaps" / f"{device}.txt")
    used = set()
    for item in items:
        if HERE not in item.path.parents:
            continue
        for pattern, reason in gaps.items():
            if fnmatchcase(item.name.replace("[", "/").replace("]", ""), pattern):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
                used.add(pattern)
    config.stash[UNUSED] = sorted(set(gaps) - used)


UNUSED = pytest.StashKey[list[str]]()


@pytest.fixture
def unused_gaps(request: pytest.FixtureRequest) -> list[str]:
    """Patterns of the tables that name no collected test."""
    return request.config.stash[UNUSED]


@pytest.fixture
def reasons_without_samples() -> dict[str, str]:
    """Operators that have no sample calls, and why."""
    return read_table(HERE / "no_samples.txt")
