"""Sizes that a rule of shapes leaves open, since they depend on data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["OpenSizes", "current", "leaving_open"]


class OpenSizes:
    """Gives numbers in the place of such sizes, which no real size is."""

    FIRST = 1_000_003

    def __init__(self) -> None:
        self.count = 0

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        """A size between limits that are not looked at."""
        self.count += 1
        return self.FIRST + self.count

    create_unbacked_symint = new_dynamic_size

    def fits(self, size: int, rule: int) -> bool:
        """Whether a real size is what a rule says."""
        return size == rule or self.FIRST < rule <= self.FIRST + self.count


current: Any = None


@contextmanager
def leaving_open(sizes: Any = None) -> Iterator[Any]:
    """Let rules leave sizes open inside; ``sizes`` gives numbers for them."""
    global current
    before, current = current, OpenSizes() if sizes is None else sizes
    try:
        yield current
    finally:
        current = before
