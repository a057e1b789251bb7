"""What asking for deterministic results does: new memory is filled, and what has no deterministic form says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tesserack as ts
from tesserack.utils import deterministic

FILLED = [
    (ts.float32, float("nan")),
    (ts.bool, True),
    (ts.int8, 127),
    (ts.uint8, 255),
    (ts.int64, 2**63 - 1),
    (ts.uint64, 2**64 - 1),
]


@pytest.fixture(autouse=True)
def asked() -> Iterator[None]:
    ts.use_deterministic_algorithms(True)
    yield
    ts.use_deterministic_algorithms(False)
    deterministic.fill_uninitialized_memory = True


@pytest.mark.parametrize(("dtype", "value"), FILLED, ids=[str(dtype) for dtype, _ in FILLED])
def test_new_memory_is_filled(device: str, dtype: ts.dtype, value: Any) -> None:
    x = ts.ones(2, dtype=dtype, device=device)
    grown = x.clone().resize_(5)
    for made in (ts.empty(3, dtype=dtype, device=device), x.new_empty(3), ts.empty_like(x), grown[2:]):
        assert all(item == value or item != item for item in made.cpu().tolist())
    assert grown[:2].cpu().tolist() == x.cpu().tolist()


def test_filling_is_a_switch() -> None:
    deterministic.fill_uninitialized_memory = False
    assert ts.ones(2).resize_(1).resize_(2).tolist() == [1, 1]
    assert ts.are_deterministic_algorithms_enabled() and not deterministic.fill_uninitialized_memory
    with pytest.raises(TypeError, match="expected a bool"):
        deterministic.fill_uninitialized_memory = 1  # type: ignore[assignment]
    deterministic.fill_uninitialized_memory = True
    assert bool(ts.Tensor(2).isnan().all())


def _unpool(device: str) -> Any:
    return ts.nn.MaxUnpool2d(2)(ts.ones(1, 1, 1, 1, device=device), ts.zeros(1, 1, 1, 1, dtype=ts.int64, device=device))


def _put(device: str) -> Any:
    return ts.zeros(3, device=device).put_(ts.tensor([0], device=device), ts.ones(1, device=device))


@pytest.mark.parametrize("call", [_unpool, _put])
def test_what_has_no_deterministic_form_says_so(device: str, call: Callable[[str], Any]) -> None:
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
        call(device)
    ts.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match="does not have a deterministic implementation"):
        warned = call(device)
    ts.use_deterministic_algorithms(False)
    assert ts.equal(warned, call(device))


def test_adding_by_position_is_deterministic(device: str) -> None:
    added = ts.zeros(3, device=device).put_(
        ts.tensor([0, 0], device=device), ts.ones(2, device=device), accumulate=True
    )
    assert added.tolist() == [2, 0, 0]
