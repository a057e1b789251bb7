"""float4_e2m1fn_x2: two values to a byte, which are moved and viewed, and converted by nobody."""

from __future__ import annotations

import io

import pytest
import tesserack as ts

PACKED = ts.float4_e2m1fn_x2


def packed(*codes: int) -> ts.Tensor:
    return ts.tensor(codes, dtype=ts.uint8).view(PACKED)


def test_what_it_is() -> None:
    x = packed(0x12, 0x7F)
    assert x.dtype is PACKED and PACKED.itemsize == x.element_size() == 1
    assert PACKED.is_floating_point and not PACKED.is_complex and PACKED.is_signed
    assert x.view(ts.uint8).tolist() == [0x12, 0x7F]
    assert "float4_e2m1fn_x2" in repr(x)


def test_it_is_moved() -> None:
    x = packed(*range(12)).reshape(3, 4)
    for made, wanted in (
        (x.clone(), range(12)),
        (x.t().contiguous().t(), range(12)),
        (ts.cat((x[:1], x[1:])), range(12)),
        (x[:, ::2], [0, 2, 4, 6, 8, 10]),
        (x.index_select(0, ts.tensor([2, 0])), [8, 9, 10, 11, 0, 1, 2, 3]),
        (ts.zeros(3, dtype=PACKED), [0, 0, 0]),
        (ts.empty(2, dtype=PACKED).copy_(packed(5, 6)), [5, 6]),
    ):
        assert made.dtype is PACKED
        assert made.contiguous().view(ts.uint8).flatten().tolist() == [*wanted]


def test_it_is_saved() -> None:
    file = io.BytesIO()
    ts.save(packed(1, 2, 3), file)
    file.seek(0)
    assert ts.load(file).view(ts.uint8).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.to(ts.float32),
        lambda x: x.float(),
        lambda x: ts.ones(2).to(PACKED),
        lambda x: ts.ones(2).copy_(x),
        lambda x: x + 1,
        lambda x: x.eq(x),
        lambda x: x.sum(),
        lambda x: x.tolist(),
        lambda x: x[0].item(),
        lambda x: ts.ones(2, dtype=PACKED),
        lambda x: x.fill_(1),
        lambda x: ts.promote_types(PACKED, ts.float32),
        lambda x: ts.rand(2, dtype=PACKED),
        lambda x: ts.cat((x, ts.ones(2))),
        lambda x: x.isnan(),
        lambda x: ts.tensor([1.0], dtype=PACKED),
        lambda x: ts.set_default_dtype(PACKED),
        lambda x: ts.finfo(PACKED),
    ],
)
def test_it_is_not_converted(convert) -> None:
    """By an error that names the dtype, never by a number that is wrong."""
    with pytest.raises((NotImplementedError, RuntimeError, TypeError), match=r"float4_e2m1fn_x2|packed|Promotion"):
        convert(packed(0x12, 0x7F))


def test_numpy_is_given_bytes() -> None:
    packed = ts.zeros(2, dtype=ts.float4_e2m1fn_x2)
    with pytest.raises(TypeError, match=r"use \.view\(uint8\) first"):
        packed.numpy()
    assert packed.view(ts.uint8).numpy().tolist() == [0, 0]
