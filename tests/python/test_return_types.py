"""Types of named results: found under their module, pickled, unpacked as trees."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack import return_types

CALLS: dict[str, Callable[[], Any]] = {
    "max": lambda: ts.eye(2).max(1),
    "sort": lambda: ts.sort(ts.eye(2), stable=True),
    "linalg_eigh": lambda: ts.linalg.eigh(ts.eye(2)),
    "frexp": lambda: ts.frexp(ts.ones(2)),
    "histogram": lambda: ts.histogram(ts.ones(2), bins=2),
}


@pytest.mark.parametrize("name", CALLS)
def test_named_results(name: str) -> None:
    result = CALLS[name]()
    assert type(result) is getattr(return_types, name) is getattr(return_types, f"{name}_out")
    assert repr(result).startswith(f"tesserack.return_types.{name}(\n")
    for again in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert type(again) is type(result)
        assert all(bool((a == b).all()) for a, b in zip(again, result, strict=True))


def test_no_such_results() -> None:
    with pytest.raises(AttributeError, match="no operator of that name returns several results with names"):
        _ = return_types.add
