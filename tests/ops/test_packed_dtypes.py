"""Two values to a byte, which are moved and viewed, and converted by nobody."""

from __future__ import annotations

import io

import pytest
import tesserack as ts

NAMES = "float4_e2m1fn_x2", "int4_x2", "uint4_x2"


@pytest.fixture(params=NAMES)
def dtype(request: pytest.FixtureRequest) -> ts.dtype:
    return getattr(ts, request.param)  # type: ignore[no-any-return]


def packed(dtype: ts.dtype, *codes: int) -> ts.Tensor:
    return ts.tensor(codes, dtype=ts.uint8).view(dtype)


def test_what_it_is(dtype: ts.dtype) -> None:
    x = packed(dtype, 0x12, 0x7F)
    assert x.dtype is dtype and dtype.itemsize == x.element_size() == 1
    assert dtype.is_floating_point == (dtype is ts.float4_e2m1fn_x2) and not dtype.is_complex
    assert dtype.is_signed == (dtype is not ts.uint4_x2)
    assert x.view(ts.uint8).tolist() == [0x12, 0x7F]
    assert str(dtype) in repr(x)


def test_it_is_moved(dtype: ts.dtype) -> None:
    x = packed(dtype, *range(12)).reshape(3, 4)
    for made, wanted in (
        (x.clone(), range(12)),
        (x.t().contiguous().t(), range(12)),
        (ts.cat((x[:1], x[1:])), range(12)),
        (x[:, ::2], [0, 2, 4, 6, 8, 10]),
        (x.index_select(0, ts.tensor([2, 0])), [8, 9, 10, 11, 0, 1, 2, 3]),
        (ts.zeros(3, dtype=dtype), [0, 0, 0]),
        (ts.empty(2, dtype=dtype).copy_(packed(dtype, 5, 6)), [5, 6]),
    ):
        assert made.dtype is dtype
        assert made.contiguous().view(ts.uint8).flatten().tolist() == [*wanted]


def test_it_is_saved(dtype: ts.dtype) -> None:
    file = io.BytesIO()
    ts.save(packed(dtype, 1, 2, 3), file)
    file.seek(0)
    assert ts.load(file).view(ts.uint8).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "convert",
    [
        lambda x, dtype: x.to(ts.float32),
        lambda x, dtype: x.float(),
        lambda x, dtype: ts.ones(2).to(dtype),
        lambda x, dtype: ts.ones(2).copy_(x),
        lambda x, dtype: x + 1,
        lambda x, dtype: x.eq(x),
        lambda x, dtype: x.sum(),
        lambda x, dtype: x.tolist(),
        lambda x, dtype: x[0].item(),
        lambda x, dtype: ts.ones(2, dtype=dtype),
        lambda x, dtype: x.fill_(1),
        lambda x, dtype: ts.promote_types(dtype, ts.float32),
        lambda x, dtype: ts.rand(2, dtype=dtype),
        lambda x, dtype: ts.cat((x, ts.ones(2))),
        lambda x, dtype: x.isnan(),
        lambda x, dtype: ts.tensor([1.0], dtype=dtype),
        lambda x, dtype: ts.set_default_dtype(dtype),
        lambda x, dtype: ts.finfo(dtype),
    ],
)
def test_it_is_not_converted(convert, dtype: ts.dtype) -> None:
    """By an error that names the dtype, never by a number that is wrong."""
    errors = NotImplementedError, RuntimeError, TypeError
    with pytest.raises(errors, match=r"int4_x2|float4_e2m1fn_x2|packed|Promotion"):
        convert(packed(dtype, 0x12, 0x7F), dtype)


def test_numpy_is_given_bytes(dtype: ts.dtype) -> None:
    packed = ts.zeros(2, dtype=dtype)
    with pytest.raises(TypeError, match=r"use \.view\(uint8\) first"):
        packed.numpy()
    assert packed.view(ts.uint8).numpy().tolist() == [0, 0]
