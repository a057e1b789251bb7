"""One rule for a number written into a tensor: it has to fit the dtype, whichever operator writes it."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts

INF = float("inf")
MASK = [True, False]


def masked(x: ts.Tensor, value: Any) -> ts.Tensor:
    x[ts.tensor(MASK)] = value
    return x


def listed(x: ts.Tensor, value: Any) -> ts.Tensor:
    x[[0]] = value
    return x


WRITES = {
    "fill_": lambda x, v: x[:1].fill_(v) and x,
    "fill_ of a tensor": lambda x, v: x[:1].fill_(ts.tensor(v)) and x,
    "item": lambda x, v: x.__setitem__(0, v) or x,
    "mask": masked,
    "mask of a tensor": lambda x, v: masked(x, ts.tensor(v)),
    "list": listed,
    "masked_fill": lambda x, v: x.masked_fill(ts.tensor(MASK), v),
    "masked_fill of a tensor": lambda x, v: x.masked_fill(ts.tensor(MASK), ts.tensor(v)),
    "masked_fill_": lambda x, v: x.masked_fill_(ts.tensor(MASK), v),
    "index_fill": lambda x, v: x.index_fill(0, ts.tensor([0]), v),
    "index_fill of a tensor": lambda x, v: x.index_fill(0, ts.tensor([0]), ts.tensor(v)),
    "scatter": lambda x, v: x.scatter(0, ts.tensor([0]), v),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("dtype", "value", "stored"),
    [
        (ts.bool, 0.5, True),
        (ts.bool, -3, True),
        (ts.int32, 2.7, 2),
        (ts.uint8, -1, 255),
        (ts.int64, True, 1),
        (ts.float16, INF, INF),
        (ts.float32, 3, 3.0),
    ],
)
def test_what_fits_is_converted(write: str, dtype: ts.dtype, value: Any, stored: Any) -> None:
    assert WRITES[write](ts.zeros(2, dtype=dtype), value).tolist() == [stored, 0]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (ts.int32, 2**40),
        (ts.int8, 300),
        (ts.int64, -INF),
        (ts.int64, float("nan")),
        (ts.uint8, 256),
        (ts.float16, 1e10),
        (ts.bfloat16, 3.4e38),
    ],
)
def test_what_does_not_fit_is_refused(write: str, dtype: ts.dtype, value: Any) -> None:
    with pytest.raises(RuntimeError, match="cannot be converted to type"):
        WRITES[write](ts.zeros(2, dtype=dtype), value)
