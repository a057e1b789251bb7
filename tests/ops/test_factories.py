"""Factories and fills against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants(device: str, dtype: str) -> None:
    d = getattr(ts, dtype)
    for got, want in [
        (ts.zeros(2, 3, dtype=d, device=device), np.zeros((2, 3), dtype)),
        (ts.ones((2, 3), dtype=d, device=device), np.ones((2, 3), dtype)),
        (ts.full((2,), 1, dtype=d, device=device), np.full((2,), 1, dtype)),
        (ts.eye(3, 4, dtype=d, device=device), np.eye(3, 4, dtype=dtype)),
        (ts.eye(2, dtype=d, device=device), np.eye(2, dtype=dtype)),
    ]:
        assert got.dtype == d
        np.testing.assert_array_equal(got.cpu().numpy(), want)


def test_default_dtypes(device: str) -> None:
    assert ts.zeros(1, device=device).dtype == ts.float32
    assert ts.full((1,), 1, device=device).dtype == ts.int64
    assert ts.full((1,), 1.0, device=device).dtype == ts.float32
    assert ts.full((1,), True, device=device).dtype == ts.bool
    assert ts.arange(3, device=device).dtype == ts.int64
    assert ts.arange(3.0, device=device).dtype == ts.float32
    assert ts.linspace(0, 1, 3, device=device).dtype == ts.float32


@pytest.mark.parametrize(
    ("real", "full", "made"),
    [(ts.float16, ts.complex64, ts.complex32), (ts.float64, ts.complex128, ts.complex128)],
)
def test_complex_numbers_follow_the_default_dtype(real: ts.dtype, full: ts.dtype, made: ts.dtype) -> None:
    """Of halves ``full`` makes none, as in PyTorch."""
    before = ts.get_default_dtype()
    ts.set_default_dtype(real)
    try:
        assert ts.full((2,), 1j).dtype is full and ts.tensor([1j]).dtype is made
    finally:
        ts.set_default_dtype(before)


@pytest.mark.parametrize(
    "args", [(5,), (2, 7), (0, 10, 3), (10, 0, -3), (0, 1, 0.25), (1.0, -1.0, -0.3), (0, 0), (-3, 3.5)]
)
def test_arange(device: str, args: tuple[float, ...]) -> None:
    want = np.arange(*args)
    got = ts.arange(*args, device=device).cpu().numpy()
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_arange_integers_beyond_doubles(device: str) -> None:
    start = 2**53
    assert ts.arange(start, start + 3, device=device).cpu().numpy().tolist() == [start, start + 1, start + 2]
    assert ts.arange(0, 5, 2, dtype=ts.int16, device=device).dtype == ts.int16


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 8])
def test_linspace(device: str, steps: int) -> None:
    np.testing.assert_allclose(
        ts.linspace(-1, 2, steps, dtype=ts.float64, device=device).cpu().numpy(), np.linspace(-1, 2, steps), rtol=1e-15
    )
    np.testing.assert_allclose(
        ts.logspace(0, 2, steps, dtype=ts.float64, device=device).cpu().numpy(), np.logspace(0, 2, steps), rtol=1e-12
    )


def test_linspace_ends_are_exact(device: str) -> None:
    x = ts.linspace(0.1, 0.7, 7, dtype=ts.float64, device=device).cpu().numpy()
    assert x[0] == 0.1 and x[-1] == 0.7
    assert ts.linspace(0, 10, 5, dtype=ts.int64, device=device).cpu().numpy().tolist() == [0, 2, 5, 7, 10]
    wide = ts.linspace(-3e38, 3e38, 5, device=device).cpu().numpy()  # whose distance is no float32
    np.testing.assert_allclose(wide, np.linspace(-3e38, 3e38, 5), rtol=1e-6)


@pytest.mark.parametrize("name", ["linspace", "logspace"])
def test_ends_that_are_no_numbers_of_the_dtype_are_refused(name: str, device: str) -> None:
    """Those that are reached: of one step the first, of none neither."""
    make = getattr(ts, name)
    for start, end, dtype in ((0, 300, ts.uint8), (-129, 0, ts.int8), (0, 1e10, ts.int32), (0, 1e6, ts.float16)):
        with pytest.raises(RuntimeError, match="without overflow"):
            make(start, end, 3, dtype=dtype, device=device)
        with pytest.raises(RuntimeError, match="without overflow"):
            make(start, end, 3, out=ts.empty(3, dtype=dtype, device=device))
        assert make(start, end, 0, dtype=dtype, device=device).shape == (0,)
    assert make(0, 300, 1, dtype=ts.uint8, device=device).tolist() == [0 if name == "linspace" else 1]
    assert ts.linspace(0, float("inf"), 1, device=device).tolist() == [0]


@pytest.mark.parametrize("ends", ["tensors", "first", "second"])
def test_linspace_between_complex_tensors(device: str, ends: str) -> None:
    start, end = 1 + 2j, 3 - 1j
    first = ts.tensor(start, device=device) if ends != "second" else start
    second = ts.tensor(end, device=device) if ends != "first" else end
    x = ts.linspace(first, second, 5, device=device).cpu().numpy()
    np.testing.assert_allclose(x, np.linspace(start, end, 5), rtol=1e-6)
    y = ts.logspace(first, second, 5, base=2.0, device=device).cpu().numpy()
    np.testing.assert_allclose(y, 2.0 ** np.linspace(start, end, 5), rtol=1e-5)


def test_like_forms(device: str) -> None:
    x = ts.zeros(2, 3, dtype=ts.int32, device=device)
    assert ts.ones_like(x).cpu().numpy().tolist() == [[1] * 3] * 2
    assert ts.ones_like(x).dtype == ts.int32
    assert ts.full_like(x, 7, dtype=ts.float64).cpu().numpy().tolist() == [[7.0] * 3] * 2
    assert ts.empty_like(x.t()).stride() == (1, 3)
    assert ts.zeros_like(x[:1].expand(2, 3)).stride() == (3, 1)
    assert x.new_zeros(4).dtype == ts.int32
    assert x.new_ones((2,), dtype=ts.float32).dtype == ts.float32
    assert x.new_full((2,), 3).cpu().numpy().tolist() == [3, 3]
    assert x.new_empty(0, 2).shape == (0, 2)


def test_requires_grad(device: str) -> None:
    assert ts.zeros(2, device=device, requires_grad=True).requires_grad
    with pytest.raises(RuntimeError):
        ts.zeros(2, dtype=ts.int64, device=device, requires_grad=True)


@pytest.mark.parametrize("diagonal", [-10, -1, 0, 1, 10])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 3), (0, 3)])
def test_triangles(device: str, shape: tuple[int, ...], diagonal: int) -> None:
    a = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    x = ts.tensor(a, device=device)
    np.testing.assert_array_equal(ts.tril(x, diagonal).cpu().numpy(), np.tril(a, diagonal))
    np.testing.assert_array_equal(ts.triu(x, diagonal).cpu().numpy(), np.triu(a, diagonal))
    np.testing.assert_array_equal(x.clone().tril_(diagonal).cpu().numpy(), np.tril(a, diagonal))
    z = x.cpu() * (1 + 2j)
    np.testing.assert_array_equal(z.tril(diagonal).numpy(), np.tril(a * (1 + 2j), diagonal))
    np.testing.assert_array_equal(z.mT.triu(diagonal).numpy(), np.triu((a * (1 + 2j)).swapaxes(-1, -2), diagonal))


def test_triangle_indices_and_gradient(device: str) -> None:
    for offset in (-1, 0, 2):
        np.testing.assert_array_equal(
            ts.tril_indices(3, 4, offset, device=device).cpu().numpy(), np.stack(np.tril_indices(3, offset, 4))
        )
        np.testing.assert_array_equal(
            ts.triu_indices(3, 4, offset, device=device).cpu().numpy(), np.stack(np.triu_indices(3, offset, 4))
        )
    x = ts.tensor(np.arange(6.0).reshape(2, 3), device=device, requires_grad=True)
    assert gradcheck(lambda t: ts.tril(t * t) + ts.triu(t, 1), (x,))


def test_indices_of_small_triangles_of_huge_matrices(device: str) -> None:
    """Rows without an element are not walked over."""
    if device != "cpu":
        pytest.skip("a card without the kernel makes a mask of the matrix")
    assert ts.triu_indices(2**63 - 1, 3, 1).tolist() == [[0, 0, 1], [1, 2, 2]]
    assert ts.tril_indices(2**62, 4, 2 - 2**62).tolist() == [[2**62 - 2, 2**62 - 1, 2**62 - 1], [0, 0, 1]]
    assert ts.tril_indices(2**62, 0).shape == (2, 0)


def test_fill(device: str) -> None:
    x = ts.zeros(2, 3, device=device)
    assert x.fill_(2.5) is x
    assert x.cpu().numpy().tolist() == [[2.5] * 3] * 2
    x.t()[1].fill_(ts.tensor(1, device=device))
    assert x.cpu().numpy().tolist() == [[2.5, 1.0, 2.5]] * 2
    assert x.zero_().cpu().numpy().sum() == 0
    y = ts.tensor(np.arange(3.0), device=device, requires_grad=True)
    v = ts.tensor(2.0, dtype=ts.float64, device=device, requires_grad=True)
    assert gradcheck(lambda a, b: (a * 1).fill_(b) * a, (y, v))


def test_unsigned_wrap_like_pytorch(device: str) -> None:
    assert ts.full((1,), -1, dtype=ts.uint8, device=device).item() == 255


ERRORS: dict[str, tuple[Callable[[str], Any], type[Exception], str]] = {
    "negative": (lambda d: ts.zeros(-1, device=d), RuntimeError, "negative dimension"),
    "overflow": (lambda d: ts.empty(2**62, 2**62, device=d), RuntimeError, "64 bits"),
    "fill_overflow": (lambda d: ts.full((2,), 300, dtype=ts.uint8, device=d), RuntimeError, "without overflow"),
    "fill_half": (lambda d: ts.full((2,), 1e6, dtype=ts.float16, device=d), RuntimeError, "without overflow"),
    "fill_nan": (lambda d: ts.zeros(2, dtype=ts.int32, device=d).fill_(float("nan")), RuntimeError, "without overflow"),
    "fill_shape": (lambda d: ts.zeros(2, device=d).fill_(ts.zeros(2, device=d)), RuntimeError, "0-dimension"),
    "fill_expanded": (
        lambda d: ts.zeros(1, device=d).expand(3).fill_(ts.tensor(1.0)),
        RuntimeError,
        "more than one element",
    ),
    "arange_zero": (lambda d: ts.arange(0, 3, 0, device=d), RuntimeError, "step must be nonzero"),
    "arange_sign": (lambda d: ts.arange(3, 0, device=d), RuntimeError, "inconsistent with step sign"),
    "arange_inf": (lambda d: ts.arange(0, float("inf"), device=d), RuntimeError, "unsupported range"),
    "linspace": (lambda d: ts.linspace(0, 1, -1, device=d), RuntimeError, "non-negative"),
    "eye": (lambda d: ts.eye(-1, device=d), RuntimeError, "greater or equal to 0"),
    "tril": (lambda d: ts.tril(ts.zeros(3, device=d)), RuntimeError, "at least 2 dimensions"),
    "strided_negative": (lambda d: ts.empty_strided((2,), (-1,), device=d), RuntimeError, "not negative"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(device: str, name: str) -> None:
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        call(device)


def test_too_large_to_allocate(device: str) -> None:
    with pytest.raises((RuntimeError, MemoryError)):
        ts.empty(2**50, device=device)


FACTORIES = {
    "linspace": lambda out: ts.linspace(1, 4, 4, out=out), "arange": lambda out: ts.arange(1.0, 5.0, out=out),
    "logspace": lambda out: ts.logspace(0, 3, 4, base=2, out=out), "full": lambda out: ts.full((2, 2), 7.0, out=out),
    "ones": lambda out: ts.ones(2, 2, out=out), "eye": lambda out: ts.eye(2, out=out),
}  # fmt: skip


@pytest.mark.parametrize("name", FACTORIES)
def test_out_writes_to_a_part_alone(device, name):
    whole, dense = ts.full((2, 4), 9.0, device=device), ts.empty(2, 2, device=device)
    part = whole[:, 1:3] if name in ("full", "ones", "eye") else whole.view(-1)[::2]
    plain = FACTORIES[name](dense if part.dim() == 2 else dense.view(-1))
    FACTORIES[name](part)
    assert ts.equal(part, plain) and (whole == 9).sum().item() == 4


def test_out_says_dtype_and_device(device):
    made = ts.full((3,), 7, dtype=ts.int32, device=device)
    assert ts.zeros(3, out=made) is made and made.tolist() == [0, 0, 0]
    assert ts.arange(1, 4, out=made).tolist() == [1, 2, 3] and made.dtype == ts.int32
    assert ts.randperm(3, out=made).sort().values.tolist() == [0, 1, 2]
    grown = ts.empty(0, dtype=ts.float64, device=device)
    assert ts.linspace(0, 1, 3, out=grown).tolist() == [0.0, 0.5, 1.0]
    halves = ts.ones(4, device=device)
    ts.eye(2, 1, out=halves[::2].unsqueeze(1))
    assert halves.tolist() == [1.0, 1.0, 0.0, 1.0]
    with pytest.raises(RuntimeError, match="does not match dtype of out"):
        ts.ones(3, dtype=ts.float32, out=made)
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        ts.ones(3, out=ts.zeros(3, requires_grad=True))


@pytest.mark.parametrize("make", [ts.linspace, ts.logspace])
def test_ends_may_be_tensors_that_ask_for_gradients(make: Any, device: str) -> None:
    low, high = (ts.tensor(x, device=device, requires_grad=True) for x in (0.5, 2.0))
    for ends in ((low, high), (low, 2), (0.5, high)):
        spaced = make(*ends, 5, device=device)
        assert not spaced.requires_grad and ts.equal(spaced, make(0.5, 2, 5, device=device))
    with pytest.raises(RuntimeError, match="0-dimensional"):
        make(low.unsqueeze(0), 2, 5)


def test_linspace_of_halves_is_rounded_once(device: str) -> None:
    """Steps are taken in a wider dtype: each number is the nearest of its own."""
    for dtype in (ts.bfloat16, ts.float16):
        for start, end, steps in ((0, 1, 7), (-5, 300, 9), (1, 2, 1000), (-3, 3, 64)):
            wide = ts.from_numpy(np.linspace(start, end, steps)).float()
            assert (ts.linspace(start, end, steps, dtype=dtype, device=device).cpu() - wide.to(dtype)).abs().max() == 0
