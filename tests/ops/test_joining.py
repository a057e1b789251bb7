"""cat, stack, repeat, roll, flip, pad against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck

A = np.arange(6.0).reshape(2, 3)
B = np.arange(10.0, 16.0).reshape(2, 3)
V = np.arange(3.0)
I4 = np.arange(24.0).reshape(1, 2, 3, 4)
F = ts.nn.functional

Case = tuple[tuple[np.ndarray, ...], Callable[..., Any], Callable[..., np.ndarray]]
CASES: dict[str, Case] = {
    "cat": ((A, B), lambda a, b: ts.cat((a, b)), lambda a, b: np.concatenate((a, b))),
    "cat_last": ((A, B), lambda a, b: ts.cat([a, b, a], -1), lambda a, b: np.concatenate((a, b, a), -1)),
    "concat_strided": (
        (A, B),
        lambda a, b: ts.concat((a.t(), b[:, ::-1].t())),
        lambda a, b: np.concatenate((a.T, b[:, ::-1].T)),
    ),
    "stack": ((A, B), lambda a, b: ts.stack((a, b)), lambda a, b: np.stack((a, b))),
    "stack_last": ((A, B), lambda a, b: ts.stack((a, b), -1), lambda a, b: np.stack((a, b), -1)),
    "hstack": ((A, B), lambda a, b: ts.hstack((a, b)), lambda a, b: np.hstack((a, b))),
    "hstack_1d": ((V, V), lambda a, b: ts.hstack((a, b)), lambda a, b: np.hstack((a, b))),
    "vstack": ((V, B), lambda a, b: ts.vstack((a, b)), lambda a, b: np.vstack((a, b))),
    "dstack": ((A, B), lambda a, b: ts.dstack((a, b)), lambda a, b: np.dstack((a, b))),
    "column_stack": ((V, V), lambda a, b: ts.column_stack((a, b)), lambda a, b: np.column_stack((a, b))),
    "repeat": ((A,), lambda a: a.repeat(2, 1, 3), lambda a: np.tile(a, (2, 1, 3))),
    "tile": ((A,), lambda a: ts.tile(a, (2,)), lambda a: np.tile(a, 2)),
    "repeat_interleave": ((A,), lambda a: a.repeat_interleave(2, 1), lambda a: a.repeat(2, 1)),
    "repeat_interleave_flat": ((A,), lambda a: a.repeat_interleave(3), lambda a: a.repeat(3)),
    "repeat_interleave_tensor": (
        (A,),
        lambda a: a.repeat_interleave(ts.tensor([2, 0, 1], device=a.device), 1),
        lambda a: a.repeat([2, 0, 1], 1),
    ),
    "roll": ((A,), lambda a: a.roll(1, 1), lambda a: np.roll(a, 1, 1)),
    "roll_flat": ((A,), lambda a: a.roll(-2), lambda a: np.roll(a, -2)),
    "roll_two": ((A,), lambda a: a.roll((1, -5), (0, 1)), lambda a: np.roll(a, (1, -5), (0, 1))),
    "flip": ((A,), lambda a: a.flip(0, 1), lambda a: np.flip(a, (0, 1))),
    "fliplr": ((A,), lambda a: ts.fliplr(a), lambda a: np.fliplr(a)),
    "flipud": ((A,), lambda a: ts.flipud(a), lambda a: np.flipud(a)),
    "rot90": ((A,), lambda a: ts.rot90(a), lambda a: np.rot90(a)),
    "rot270": ((A,), lambda a: ts.rot90(a, -1), lambda a: np.rot90(a, -1)),
    "pad": (
        (A,),
        lambda a: F.pad(a, (1, 2, 0, 1), value=5.0),
        lambda a: np.pad(a, ((0, 1), (1, 2)), constant_values=5),
    ),
    "pad_negative": ((A,), lambda a: F.pad(a, (-1, 2)), lambda a: np.pad(a, ((0, 0), (0, 2)))[:, 1:]),
    "pad_reflect": (
        (I4,),
        lambda a: F.pad(a, (3, 1, 0, 2), "reflect"),
        lambda a: np.pad(a, ((0, 0), (0, 0), (0, 2), (3, 1)), "reflect"),
    ),
    "pad_replicate": (
        (I4,),
        lambda a: F.pad(a, (3, 1, 0, 9), "replicate"),
        lambda a: np.pad(a, ((0, 0), (0, 0), (0, 9), (3, 1)), "edge"),
    ),
    "pad_circular": (
        (I4,),
        lambda a: F.pad(a, (3, 4, 0, 2), "circular"),
        lambda a: np.pad(a, ((0, 0), (0, 0), (0, 2), (3, 4)), "wrap"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values(device: str, name: str) -> None:
    arrays, join, expected = CASES[name]
    got = join(*(ts.tensor(a, device=device) for a in arrays)).cpu().numpy()
    np.testing.assert_array_equal(got, expected(*arrays))


@pytest.mark.parametrize("name", CASES)
def test_gradients(device: str, name: str) -> None:
    arrays, join, _ = CASES[name]
    inputs = tuple(ts.tensor(a, device=device, requires_grad=True) for a in arrays)
    assert gradcheck(lambda *t: join(*t) ** 2, inputs)
    assert gradgradcheck(lambda *t: join(*t) ** 3, inputs)


@pytest.mark.parametrize(
    "dtypes", [("int32", "int64"), ("int64", "float32"), ("float32", "float64"), ("bool", "uint8")]
)
def test_cat_promotes(device: str, dtypes: tuple[str, str]) -> None:
    a, b = (np.ones(2, dtype) for dtype in dtypes)
    got = ts.cat((ts.tensor(a, device=device), ts.tensor(b, device=device)))
    want = "float32" if dtypes == ("int64", "float32") else np.promote_types(*dtypes).name
    assert got.dtype == getattr(ts, want)
    assert got.cpu().numpy().tolist() == [1] * 4


def test_cat_skips_old_style_empties(device: str) -> None:
    a = ts.tensor(A, device=device, requires_grad=True)
    e = ts.zeros(0, dtype=ts.float64, device=device, requires_grad=True)
    got = ts.cat((e, a, e), 1)
    assert got.shape == (2, 3)
    got.sum().backward()
    assert e.grad.shape == (0,) and (a.grad.cpu().numpy() == 1).all()


def test_cat_of_zero_sized(device: str) -> None:
    x = ts.zeros(0, 3, device=device)
    assert ts.cat((x, ts.ones(2, 3, device=device))).shape == (2, 3)
    assert ts.stack((x, x)).shape == (2, 0, 3)
    assert x.repeat(2, 2).shape == (0, 6)
    assert x.flip(0).shape == (0, 3)


def test_cat_keeps_channels_last(device: str) -> None:
    x = ts.tensor(I4, device=device).contiguous(memory_format=ts.channels_last)
    got = ts.cat((x, x), 1)
    assert got.is_contiguous(memory_format=ts.channels_last)
    np.testing.assert_array_equal(got.cpu().numpy(), np.concatenate((I4, I4), 1))


def test_cat_into_out(device: str) -> None:
    out = ts.empty(0, dtype=ts.float64, device=device)
    assert ts.cat((ts.tensor(A, device=device),) * 2, out=out) is out
    np.testing.assert_array_equal(out.cpu().numpy(), np.concatenate((A, A)))


ERRORS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "cat_nothing": (lambda t: ts.cat([]), (RuntimeError, ValueError), "non-empty"),
    "cat_sizes": (lambda t: ts.cat((t, t[:, :2])), RuntimeError, "Sizes of tensors must match"),
    "cat_dims": (lambda t: ts.cat((t, t[0])), RuntimeError, "same number of dimensions"),
    "cat_0d": (lambda t: ts.cat((t.sum(), t.sum())), RuntimeError, "zero-dimensional"),
    "stack": (lambda t: ts.stack((t, t.t())), RuntimeError, "equal size"),
    "repeat": (lambda t: t.repeat(2), RuntimeError, "can not be smaller"),
    "repeat_negative": (lambda t: t.repeat(-1, 2), RuntimeError, "negative dimension"),
    "repeat_huge": (lambda t: t.repeat(2**40, 2**40), RuntimeError, "64 bits|overflow"),
    "roll": (lambda t: t.roll((1, 2), 0), RuntimeError, "must align"),
    "flip": (lambda t: t.flip(0, 0), RuntimeError, "multiple times"),
    "pad_odd": (lambda t: F.pad(t, (1,)), RuntimeError, "even"),
    "pad_many": (lambda t: F.pad(t, (1,) * 6), RuntimeError, "no more than twice"),
    "pad_reflect": (lambda t: F.pad(t, (3, 0), "reflect"), RuntimeError, "less than"),
    "pad_mode": (lambda t: F.pad(t, (1, 0), "mirror"), NotImplementedError, "Unrecognised"),
    "pad_negative": (lambda t: F.pad(t, (-2, -2)), RuntimeError, "negative output size"),
    "interleave": (lambda t: t.repeat_interleave(ts.tensor([1, 2], device=t.device), 1), RuntimeError, "same size"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(device: str, name: str) -> None:
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        call(ts.tensor(A, device=device))
