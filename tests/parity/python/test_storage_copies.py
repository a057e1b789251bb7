"""Storages that are copied, filled and shared.

Each is one program for both libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from outcomes import error_of


def storages_are_copied_and_filled(m: Any) -> Any:
    x = m.arange(4.0)
    storage = x.untyped_storage()
    other = storage.clone()
    apart = other.data_ptr() != storage.data_ptr()
    filled = other.fill_(1).tolist()[:3]
    back = other.copy_(storage).tolist() == storage.tolist()
    storage.fill_(0)
    kinds = [storage.is_cuda, storage.is_shared(), storage.is_pinned(), storage.cpu() is storage]
    return [apart, filled, back, x, kinds, error_of(lambda: storage.copy_(m.zeros(9).untyped_storage()))]


PROGRAMS = [storages_are_copied_and_filled]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)
