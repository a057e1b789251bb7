"""``tesserack conform NAME``: the conformance kit on one device. Its options are its own."""

from __future__ import annotations

from tesserack.cli import import_part

__all__ = ["run"]


def run(words: list[str]) -> int:
    """Run the kit; its exit status."""
    kit = import_part("tesserack.testing.conform", "conform")
    return int(kit.main(words) or 0)
