"""Copies and casts: copy_, clone, contiguous, to and item."""

from __future__ import annotations

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck

INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", "float32", "float64"]


@pytest.mark.parametrize("to", [*INTEGERS, *FLOATS, "bool"])
@pytest.mark.parametrize("of", [*INTEGERS, *FLOATS, "bool"])
def test_casts(device: str, of: str, to: str) -> None:
    a = np.array([[0, 1, 2], [100, 3, 7]]).astype(of)
    got = ts.tensor(a, device=device).to(getattr(ts, to))
    assert got.dtype == getattr(ts, to)
    np.testing.assert_array_equal(got.cpu().numpy(), a.astype(to))


def test_bfloat16_rounds_to_nearest_even(device: str) -> None:
    # 1 + 2**-8 lies between two bfloat16 numbers; the even one is 1.
    x = ts.tensor([1 + 2**-8, 1 + 3 * 2**-8, -2.5], device=device)
    assert x.bfloat16().float().cpu().numpy().tolist() == [1.0, 1 + 2 * 2**-7, -2.5]


def test_shorthands(device: str) -> None:
    x = ts.tensor([1.5, 0.0], device=device)
    names = {
        "float": "float32",
        "double": "float64",
        "half": "float16",
        "bfloat16": "bfloat16",
        "long": "int64",
        "int": "int32",
        "short": "int16",
        "char": "int8",
        "byte": "uint8",
        "bool": "bool",
    }
    for method, dtype in names.items():
        assert getattr(x, method)().dtype == getattr(ts, dtype)
    assert x.float() is x
    assert x.double().type_as(x).dtype == ts.float32


def test_to_returns_self_only_when_nothing_changes(device: str) -> None:
    x = ts.ones(2, 3, device=device)
    assert x.to(ts.float32) is x
    assert x.to(device) is x
    assert x.to(device, ts.float32) is x
    assert x.to(x) is x
    assert x.to(ts.float32, copy=True) is not x
    assert x.to(dtype=ts.float64).dtype == ts.float64


def test_copy_broadcasts_and_casts(device: str) -> None:
    x = ts.zeros(2, 3, device=device)
    assert x.copy_(ts.tensor([1, 2, 3], device=device)) is x
    np.testing.assert_array_equal(x.cpu().numpy(), [[1, 2, 3], [1, 2, 3]])
    with pytest.raises(RuntimeError, match="must match the existing size"):
        x.copy_(ts.zeros(4, device=device))
    with pytest.raises(RuntimeError, match="more than one element"):
        ts.zeros(1, 3, device=device).expand(2, 3).copy_(x)


def test_copy_between_overlapping_views(device: str) -> None:
    x = ts.arange(6, device=device)
    x[1:].copy_(x[:-1].clone())
    assert x.cpu().numpy().tolist() == [0, 0, 1, 2, 3, 4]
    for to, source in ((x[1:], x[:-1]), (x.view(2, 3), x.view(3, 2).t())):
        with pytest.raises(RuntimeError, match="some elements of the input tensor"):
            to.copy_(source)
    x[::2].copy_(x[1::2])
    assert x.cpu().numpy().tolist() == [0, 0, 2, 2, 4, 4]
    z = ts.arange(4, device=device)
    z.copy_(z[::-1])
    assert z.cpu().numpy().tolist() == [3, 2, 1, 0]


def test_clone_keeps_dense_strides(device: str) -> None:
    x = ts.arange(6, device=device).reshape(2, 3).t()
    assert x.clone().stride() == x.stride()
    assert x.clone(memory_format=ts.contiguous_format).stride() == (2, 1)
    assert ts.zeros(1, 3, device=device).expand(2, 3).clone().stride() == (3, 1)


def test_channels_last(device: str) -> None:
    x = ts.arange(24, device=device).reshape(1, 2, 3, 4)
    y = x.contiguous(memory_format=ts.channels_last)
    assert y.stride() == (24, 1, 8, 2)
    assert y.is_contiguous(memory_format=ts.channels_last)
    np.testing.assert_array_equal(y.cpu().numpy(), x.cpu().numpy())
    assert x.to(memory_format=ts.channels_last).stride() == y.stride()
    with pytest.raises(RuntimeError, match="4-d"):
        ts.zeros(3, device=device).contiguous(memory_format=ts.channels_last)


def test_contiguous(device: str) -> None:
    x = ts.arange(6, device=device).reshape(2, 3)
    assert x.contiguous() is x
    y = x.t().contiguous()
    assert y.is_contiguous() and y.cpu().numpy().tolist() == [[0, 3], [1, 4], [2, 5]]
    z = x[:, ::-1].contiguous()
    assert z.cpu().numpy().tolist() == [[2, 1, 0], [5, 4, 3]]


def test_gradients(device: str) -> None:
    x = ts.tensor(np.arange(6.0).reshape(2, 3), device=device, requires_grad=True)
    row = ts.tensor(np.arange(3.0), device=device, requires_grad=True)
    assert gradcheck(lambda t: t.clone() * 2, (x,))
    assert gradcheck(lambda t: t.t().contiguous() * 2, (x,))
    assert gradcheck(lambda t, r: (t * 1).copy_(r) * t, (x, row))
    y = x.float()
    (y * y).sum().backward()
    assert x.grad.dtype == ts.float64
    np.testing.assert_allclose(x.grad.cpu().numpy(), 2 * np.arange(6.0).reshape(2, 3))


def test_item(device: str) -> None:
    for value, dtype in [
        (3, ts.int8),
        (-5, ts.int64),
        (0.5, ts.float16),
        (1.5, ts.bfloat16),
        (2.25, ts.float64),
        (True, ts.bool),
    ]:
        got = ts.tensor(value, dtype=dtype, device=device).item()
        assert got == value and type(got) is type(value)
    assert ts.tensor([[7.0]], device=device).item() == 7.0
    with pytest.raises(RuntimeError, match="a Tensor with 2 elements cannot be converted to Scalar"):
        ts.zeros(2, device=device).item()


def test_meta_has_no_data() -> None:
    x = ts.zeros(2, 3, device="meta")
    assert x.t().clone().shape == (3, 2)
    with pytest.raises(NotImplementedError, match="no data"):
        x.cpu()
    with pytest.raises(RuntimeError, match="cannot be called on meta tensors"):
        x[0, 0].item()
    with pytest.raises(NotImplementedError, match="no data"):
        x.tolist()
    with pytest.raises(NotImplementedError, match="no values"):
        ts.equal(x, x)


def test_to_meta_and_empty(device: str) -> None:
    x = ts.zeros(0, 3, device=device)
    assert x.to("meta").shape == (0, 3)
    assert x.to(ts.int32).shape == (0, 3)
    assert x.copy_(ts.zeros(0, 3, device=device)).numel() == 0


@pytest.mark.parametrize("dtype", [ts.float32, ts.int64])
def test_one_of_its_elements_fills_a_tensor(dtype, device):
    """An operand that is broadcast may lie within what is written to."""
    x = ts.arange(12, device=device).reshape(3, 4).to(dtype)
    x[1] = x[1][0]
    x[2].copy_(x[2, 2])
    assert x.tolist() == [[0, 1, 2, 3], [4] * 4, [10] * 4]
    x[0].masked_fill_(x[0] > 0, x[0, 2])
    assert x[0].tolist() == [0, 2, 2, 2]


OVER_ITS_OPERAND = {
    "sin": lambda x, out: ts.sin(x, out=out),
    "pow": lambda x, out: ts.pow(x, x.clone(), out=out),
    "clamp": lambda x, out: ts.clamp(x, x.new_zeros(8), out=out),
    "lerp": lambda x, out: ts.lerp(x, x.clone(), x.clone(), out=out),
    "logit": lambda x, out: ts.logit(x, out=out),
    "max": lambda x, out: ts.max(x.clone(), x, out=out),
    "nan_to_num": lambda x, out: ts.nan_to_num(x, out=out),
}


@pytest.mark.parametrize("call", OVER_ITS_OPERAND.values(), ids=OVER_ITS_OPERAND)
def test_results_over_a_part_of_an_operand_are_refused(device: str, call) -> None:
    x = ts.linspace(0.1, 0.9, 9, device=device)
    kept = x.clone()
    with pytest.raises(RuntimeError, match="single memory location"):
        call(x[:8], x[1:])
    assert ts.equal(x, kept)
    over, beside = x[:8].clone(), ts.empty(8, device=device)
    assert ts.equal(call(over, over), call(kept[:8], beside))


@pytest.mark.parametrize("shape", [(2, 1, 5, 6), (2, 3, 1, 1), (1, 1, 4, 4)])
def test_channels_last_where_either_layout_would_do(device: str, shape: tuple[int, ...]) -> None:
    """`to` goes by what the strides say, `contiguous` by where the elements lie; results follow the strides."""
    x = ts.arange(float(np.prod(shape)), device=device).reshape(shape)
    last, (_, c, h, w) = x.to(memory_format=ts.channels_last), shape
    assert last.stride() == (c * h * w, 1, w * c, c) and x.contiguous(memory_format=ts.channels_last) is x
    assert last.to(memory_format=ts.channels_last) is last and ts.equal(last, x)
    assert last.to(memory_format=ts.contiguous_format).stride() == x.stride()
    weight = ts.ones(4, c, 1, 1, device=device)
    kernel = ts.ones(4, c, 2, 2, device=device).to(memory_format=ts.channels_last).requires_grad_()
    ts.nn.functional.conv2d(ts.ones(1, c, 4, 4, device=device), kernel).sum().backward()
    assert kernel.grad.stride() == kernel.stride() and ts.equal(kernel.grad, ts.full_like(kernel, 9))
    made = ts.nn.functional.conv2d(last, weight)
    assert made.is_contiguous(memory_format=ts.channels_last) and made.stride(1) == 1
    assert ts.equal(made, ts.nn.functional.conv2d(x, weight)) and ts.nn.functional.conv2d(x, weight).stride(1) == h * w


def test_channels_that_lie_innermost_stay_there(device: str) -> None:
    """Where the strides of a row of one element say nothing either way."""
    x = ts.arange(6.0, device=device).reshape(1, 3, 2, 1).permute(0, 2, 1, 3)
    made = ts.nn.BatchNorm2d(2).to(device).eval()(x)
    assert made.is_contiguous(memory_format=ts.channels_last) and not made.is_contiguous()
