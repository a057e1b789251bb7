"""Pointwise operators on operands of which one element stands for all: values, layout, writing in place."""

from __future__ import annotations

import numpy as np
import pytest
import tesserack as ts

DTYPES = [ts.float32, ts.float64, ts.bfloat16, ts.int64, ts.uint8]
M = np.arange(1, 13).reshape(3, 4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
def test_beside_a_contiguous_operand(dtype: ts.dtype, first: bool) -> None:
    one, m = ts.tensor(100, dtype=dtype).expand(3, 4), ts.tensor(M, dtype=dtype)
    out = one - m if first else m - one
    expected = 100 - M if first else M - 100
    wrapped = expected % 256 if dtype == ts.uint8 else expected
    assert out.dtype == dtype and out.is_contiguous() and (out.double().numpy() == wrapped).all()
    assert ((one > m).numpy() == (M < 100)).all()


def test_alone() -> None:
    out = ts.tensor([[2.0]]).expand(3, 4).exp()
    assert out.is_contiguous() and out.numpy() == pytest.approx(np.full((3, 4), np.exp(2.0)))
    both = ts.tensor(2.0).expand(3, 4) * ts.tensor([[5.0]]).expand(3, 4)
    assert both.is_contiguous() and both.tolist() == [[10.0] * 4] * 3


def test_results_lie_in_memory_in_the_order_of_the_operands() -> None:
    x = ts.ones(4, 6)[:, ::2].t()
    assert (x * 2).stride() == (1, 3) and (ts.ones(1, 1).expand(3, 4) + x).stride() == (1, 3)
    image = ts.ones(2, 3, 4, 5).contiguous(memory_format=ts.channels_last)
    one = ts.ones(1, 1, 1, 1).expand(2, 3, 4, 5)
    assert (one + image).stride() == (image + one).stride() == image.stride()
    assert (image.contiguous() + image).is_contiguous()


def test_an_element_of_what_is_written() -> None:
    x = ts.arange(5.0)
    x += x[1].expand(5)
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_written_to_is_refused() -> None:
    with pytest.raises(RuntimeError, match="more than one element"):
        ts.ones(1).expand(4).add_(ts.ones(4))


def test_one_row_is_not_one_element() -> None:
    rows, m = ts.arange(4.0).expand(3, 4), ts.tensor(M, dtype=ts.float32)
    assert (rows + m).tolist() == (np.arange(4.0) + M).tolist()
    columns = ts.arange(3.0)[:, None].expand(3, 4)
    assert (columns + m).tolist() == (np.arange(3.0)[:, None] + M).tolist()


def test_the_gradient_of_a_sum() -> None:
    x = ts.tensor([[-1.0, 2.0], [3.0, -4.0]], requires_grad=True)
    (3 * x.relu().sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [[0.0, 3.0], [3.0, 0.0]]
