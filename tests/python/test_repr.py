"""What tensors look like when printed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tesserack as ts


@pytest.fixture(autouse=True)
def _default_options() -> Iterator[None]:
    yield
    ts.set_printoptions(profile="default")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ts.tensor(1.5), "tensor(1.5000)"),
        (lambda: ts.tensor(3), "tensor(3)"),
        (lambda: ts.tensor(True), "tensor(True)"),
        (lambda: ts.tensor([1.0, 2.0]), "tensor([1., 2.])"),
        (lambda: ts.tensor([-1, 20]), "tensor([-1, 20])"),
        (lambda: ts.tensor([[1.5, -2.0]]), "tensor([[ 1.5000, -2.0000]])"),
        (lambda: ts.tensor([float("nan"), float("inf"), 1.0]), "tensor([nan, inf, 1.])"),
        (lambda: ts.tensor([1e-5, 1.0]), "tensor([1.0000e-05, 1.0000e+00])"),
        (lambda: ts.tensor([1e9]), "tensor([1.0000e+09])"),
        (lambda: ts.tensor([1001.0, 1.0]), "tensor([1.0010e+03, 1.0000e+00])"),
        (lambda: ts.zeros(0), "tensor([])"),
        (lambda: ts.zeros(2, 0), "tensor([], size=(2, 0))"),
        (lambda: ts.zeros(0, dtype=ts.int64), "tensor([], dtype=tesserack.int64)"),
        (lambda: ts.ones(2, dtype=ts.float64), "tensor([1., 1.], dtype=tesserack.float64)"),
        (lambda: ts.ones(2, dtype=ts.bfloat16), "tensor([1., 1.], dtype=tesserack.bfloat16)"),
        (lambda: ts.tensor([1], dtype=ts.uint8), "tensor([1], dtype=tesserack.uint8)"),
        (lambda: ts.ones(1, requires_grad=True), "tensor([1.], requires_grad=True)"),
        (lambda: ts.ones(1, requires_grad=True) * 2, "tensor([2.], grad_fn=<MulBackward0>)"),
        (lambda: ts.ones(2, device="meta"), "tensor(..., device='meta', size=(2,))"),
        (lambda: ts.arange(1001), "tensor([   0,    1,    2,  ...,  998,  999, 1000])"),
        (lambda: ts.ones(2, 2, 1), "tensor([[[1.],\n         [1.]],\n\n        [[1.],\n         [1.]]])"),
        (lambda: ts.tensor([1 + 2j, -1.5j]), "tensor([1.+2.0000j, -0.-1.5000j])"),
        (lambda: ts.nn.Parameter(ts.ones(1)), "Parameter containing:\ntensor([1.], requires_grad=True)"),
    ],
)
def test_text(make: object, text: str) -> None:
    assert repr(make()) == text  # type: ignore[operator]
    assert str(make()) == text  # type: ignore[operator]


def test_long_lines_wrap() -> None:
    assert repr(ts.arange(30)) == (
        "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
        "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])"
    )


def test_options() -> None:
    x = ts.tensor([1.23456789, 2.0])
    ts.set_printoptions(precision=2)
    assert repr(x) == "tensor([1.23, 2.00])"
    ts.set_printoptions(sci_mode=True)
    assert repr(x) == "tensor([1.23e+00, 2.00e+00])"
    ts.set_printoptions(profile="short")
    assert repr(ts.arange(1001)) == "tensor([   0,    1,  ...,  999, 1000])"
    ts.set_printoptions(profile="full")
    assert "..." not in repr(ts.arange(1001))
    ts.set_printoptions(profile="default", threshold=2, edgeitems=1)
    assert repr(ts.arange(9).view(3, 3)) == "tensor([[0,  ..., 2],\n        ...,\n        [6,  ..., 8]])"
    ts.set_printoptions(profile="nosuch")  # sets none, as in PyTorch
    assert repr(ts.arange(9).view(3, 3)).count("...") == 3


def test_objects() -> None:
    assert (
        repr(ts.float32) == "tesserack.float32"
        and repr(ts.strided) == "tesserack.strided"
        and repr(ts.channels_last) == "tesserack.channels_last"
    )
    assert repr(ts.device("meta")) == "device(type='meta')" and str(ts.device("meta")) == "meta"
    assert repr(ts.finfo(ts.float32)).startswith(
        "finfo(resolution=1e-06, min=-3.40282e+38, max=3.40282e+38, eps=1.19209e-07"
    )
    assert repr(ts.iinfo(ts.int8)) == "iinfo(min=-128, max=127, dtype=int8)"


def test_a_view_that_lost_its_history_can_be_shown():
    base = ts.ones(2, requires_grad=True).clone()
    with ts.no_grad():
        view = base[:1]
    base.mul_(2)
    assert repr(view) == "tensor([2.], grad_fn=<Invalid>)"
