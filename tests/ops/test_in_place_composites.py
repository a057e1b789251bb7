"""In-place forms of functions written in Python, under gradients; and slopes beside infinities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts

FORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "float_power_": (lambda x: x.float_power_(3.0), lambda x: x.float_power(3.0)),
    "polygamma_": (lambda x: x.polygamma_(1), lambda x: x.polygamma(1)),
    "polygamma_ of two": (lambda x: x.polygamma_(2), lambda x: x.polygamma(2)),
    "mvlgamma_": (lambda x: x.mvlgamma_(2), lambda x: x.mvlgamma(2)),
}


@pytest.mark.parametrize("name", FORMS)
def test_gradients_of_what_was_overwritten(name: str, device: ts.device) -> None:
    """The values that are needed are those from before."""
    in_place, plain = FORMS[name]
    x = ts.tensor([1.5, 2.5], dtype=ts.float64, device=device, requires_grad=True)
    assert ts.autograd.grad(in_place(x.clone()).sum(), x)[0].tolist() == ts.autograd.grad(plain(x).sum(), x)[0].tolist()
    y = ts.tensor([1.5, 2.5], dtype=ts.float64, device=device)
    assert in_place(y) is y


def test_slopes_beside_infinities(device: ts.device) -> None:
    """Central differences are of the neighbours alone."""
    inf = float("inf")
    x = ts.tensor([2, -2, inf, inf, -inf], device=device)
    assert ts.gradient(x)[0].tolist() == [-4, inf, inf, -inf, -inf]
    assert ts.gradient(x, spacing=2.0)[0].tolist() == [-2, inf, inf, -inf, -inf]
    assert ts.gradient(ts.arange(5.0, device=device) ** 2, spacing=0.5)[0].tolist() == [2, 4, 8, 12, 14]


def test_segment_reduce_by_its_other_name(device: ts.device) -> None:
    """As torch._segment_reduce."""
    lengths = ts.tensor([2, 3], device=device)
    assert ts._segment_reduce(ts.arange(5.0, device=device), "sum", lengths=lengths).tolist() == [1, 9]


def test_dropout_that_drops_nothing_writes_nothing(device: ts.device) -> None:
    """What was saved of its input stays as it was; what is dropped is counted once."""
    x = ts.ones(2, 4, device=device, requires_grad=True)
    for p, training, written in ((0.0, True, 0), (0.5, False, 0), (0.5, True, 1)):
        weights = x.softmax(1)
        assert ts.dropout_(weights, p, training) is weights and weights._version == written
        if not written:
            (weights * ts.arange(4.0, device=device)).sum().backward()
    layer = ts.nn.Dropout(0.0, inplace=True)
    assert layer(ts.ones(3, device=device))._version == 0
