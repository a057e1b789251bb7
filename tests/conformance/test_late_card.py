"""The kit on a card whose work is always late: what asks for order, and of the rest a part. FULL=1 runs all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tesserack.testing import seeds

ORDERED = "capabilities,slots,memory,streams,saving"


def failures(found: Any) -> list[tuple[str, str]]:
    return [(case["id"], case["message"]) for case in found["cases"] if case["outcome"] == "failed"]


def test_what_asks_for_order(conform_late: Callable[..., tuple[str, Any]]) -> None:
    _, found = conform_late("--areas", ORDERED, "--quick")
    assert failures(found) == []
    ran = {case["id"].partition("::")[0] for case in found["cases"] if case["outcome"] == "passed"}
    assert {"test_slots.py", "test_memory.py", "test_streams.py", "test_capabilities.py"} <= ran


@pytest.mark.skipif(not seeds.full(), reason="takes minutes; FULL=1 runs it")
def test_all_of_it(conform_late: Callable[..., tuple[str, Any]]) -> None:
    printed, found = conform_late()
    assert failures(found) == []
    assert "complete" in printed
