"""complex32 and the floats of 8 bits: what moves them works, what does not compute with them says so."""

# ruff: noqa: E501, RUF043
from __future__ import annotations

import copy
import math
import pickle
import struct
from typing import Any

import numpy as np
import pytest
import tesserack as ts

FLOAT8 = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
BYTES = {"complex32": 4, **dict.fromkeys(FLOAT8, 1)}
EXACT = [1.0, 0.25, 4.0, 2.0]  # of every one of them


@pytest.fixture(params=[*BYTES])
def kind(request: Any) -> Any:
    return getattr(ts, request.param)


def made(kind: Any, device: Any) -> Any:
    return ts.tensor(EXACT, dtype=kind, device=device)


def test_made_and_read(kind: Any, device: Any) -> None:
    x = made(kind, device)
    assert x.tolist() == EXACT and x[1].item() == 0.25 and x.element_size() == BYTES[str(kind).split(".")[1]]
    assert x.nbytes == 4 * x.element_size() and x.dtype is kind and f"dtype={kind}" in repr(x)
    for y in (ts.ones(2, dtype=kind, device=device), ts.full((2,), 1, dtype=kind, device=device), ts.ones_like(x[:2])):
        assert y.dtype is kind and y.tolist() == [1, 1]
    assert kind.is_complex == (kind is ts.complex32) == x.is_complex() and kind.is_floating_point != kind.is_complex


@pytest.mark.filterwarnings("ignore:Casting complex")
def test_casts_there_and_back(kind: Any, device: Any) -> None:
    for other in ("bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        x = ts.tensor([1, 0, 4, 2], device=device).to(getattr(ts, other))
        if kind is ts.float8_e8m0fnu:
            x = x[[0, 2, 3]]
        assert x.to(kind).dtype is kind and x.to(kind).to(x.dtype).tolist() == x.tolist()
        assert x.to(kind)[::2].to(x.dtype).tolist() == x[::2].tolist()


def test_moved(kind: Any, device: Any) -> None:
    x = made(kind, device)
    square = x.view(2, 2)
    assert square.t().contiguous().tolist() == [[1, 4], [0.25, 2]] and x.clone().tolist() == EXACT
    assert ts.cat([x, x[:1]]).tolist() == [*EXACT, 1] and ts.stack([x, x]).shape == (2, 4)
    assert x[ts.tensor([3, 0], device=device)].tolist() == [2, 1] and x[x == 4].tolist() == [4]
    assert ts.where(x == 4, x, x[:1].expand(4)).tolist() == [1, 1, 4, 1]
    assert x.roll(1).tolist() == [2, 1, 0.25, 4] and x.repeat(2).tolist() == 2 * EXACT
    x[0], x[1:3] = 2, ts.ones(2, device=device)
    assert x.tolist() == [2, 1, 1, 2] and ts.zeros(4, device=device).copy_(ts.real(x)).tolist() == [2, 1, 1, 2]
    assert x.view(ts.uint8).view(kind).tolist() == x.tolist()


def test_kept(kind: Any, device: Any, tmp_path: Any) -> None:
    x = made(kind, device)
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y.dtype is kind and y.tolist() == EXACT
    ts.save({"x": x}, tmp_path / "x.pt", format="torch")
    assert ts.load(tmp_path / "x.pt")["x"].tolist() == EXACT
    ts.save({"x": x}, tmp_path / "x.safetensors")
    found = ts.load(tmp_path / "x.safetensors")["x"]
    assert found.dtype is kind and found.tolist() == EXACT
    if kind.is_complex:
        with pytest.raises(TypeError, match="complex32"):
            ts.save({"x": x}, tmp_path / "x.safetensors.index.json")


def test_handed_on(kind: Any) -> None:
    x = made(kind, "cpu")
    y = ts.from_dlpack(x)
    assert y.dtype is kind and y.data_ptr() == x.data_ptr()
    with pytest.raises(TypeError, match="NumPy has no such dtype"):
        x.numpy()
    assert len(memoryview(x.contiguous())) == 4 and memoryview(x).itemsize == x.element_size()
    assert x.storage().tolist() == EXACT and x.untyped_storage().nbytes() == x.nbytes


def test_gradients_pass(kind: Any, device: Any) -> None:
    y = ts.tensor([1.0, 2.0, 4.0], device=device, requires_grad=True)
    ts.real(y.to(kind).clone()[1:]).to(ts.float32).sum().backward()
    assert y.grad[1:].tolist() == [1, 1] and y.grad[0].item() < 1e-37  # which e8m0 has for 0


@pytest.mark.parametrize("call", [
    lambda x: x / 2, lambda x: x.sum(), lambda x: x.exp(), lambda x: x.flip(0), lambda x: x.cumsum(0), lambda x: x.sqrt(),
    lambda x: x.gather(0, ts.tensor([0], device=x.device)), lambda x: x.mean(), lambda x: x.prod(), lambda x: x.div_(2),
    lambda x: ts.arange(3, dtype=x.dtype), lambda x: ts.linspace(0, 1, 3, dtype=x.dtype), lambda x: x.unique(),
    lambda x: ts.ones(2, device=x.device).sum(dtype=x.dtype), lambda x: x.tanh(), lambda x: x.softmax(0),
])  # fmt: skip
def test_refused(call: Any, kind: Any, device: Any) -> None:
    x = made(kind, device)
    with pytest.raises(NotImplementedError, match="not implemented for dtype|complex numbers have no order"):
        call(x)
    assert x.tolist() == EXACT


def test_arithmetic_of_float8_is_refused(device: Any) -> None:
    for name in FLOAT8:
        x = made(getattr(ts, name), device)
        for call in (
            lambda x: x + x,
            lambda x: x - 1,
            lambda x: -x,
            lambda x: x * 2,
            lambda x: x < 1,
            lambda x: x.max(),
        ):
            with pytest.raises(NotImplementedError, match=name):
                call(x)
        for other in (
            ts.float32,
            ts.int64,
            ts.float8_e5m2 if name != "float8_e5m2" else ts.float8_e4m3fn,
            ts.complex32,
        ):
            with pytest.raises(RuntimeError, match="Promotion for Float8"):
                ts.promote_types(x.dtype, other)
        with pytest.raises(TypeError):
            ts.set_default_dtype(x.dtype)


def test_arithmetic_of_complex32(device: Any) -> None:
    x = ts.tensor([1 + 2j, 3 - 0.5j], device=device).chalf()
    assert x.dtype is ts.complex32 is ts.chalf
    assert (x + x).tolist() == [2 + 4j, 6 - 1j] and (2 - x).tolist() == [1 - 2j, -1 + 0.5j]
    assert (x * x).tolist() == [-3 + 4j, 8.75 - 3j] and (x * 2j).tolist() == [-4 + 2j, 1 + 6j]
    assert (
        x.abs().dtype is ts.float16
        and x.conj().tolist() == [1 - 2j, 3 + 0.5j]
        and (-x).tolist() == [-1 - 2j, -3 + 0.5j]
    )
    assert (ts.ones(2, dtype=ts.float16, device=device) * 1j).dtype is ts.complex32
    assert ts.view_as_real(x).tolist() == [[1, 2], [3, -0.5]] and ts.view_as_real(x).dtype is ts.float16
    assert ts.view_as_complex(ts.ones(3, 2, dtype=ts.float16, device=device)).tolist() == [1 + 1j] * 3
    x.imag.zero_()
    assert x.tolist() == [1, 3] and (x == ts.tensor([1, 4], device=device)).tolist() == [True, False]


def test_limits() -> None:
    assert ts.finfo(ts.complex32).max == 65504 and ts.finfo(ts.float8_e4m3fn).max == 448
    assert ts.finfo(ts.float8_e8m0fnu).min == 2.0**-127 == ts.finfo(ts.float8_e8m0fnu).tiny
    odd = ts.tensor([449.0, 1e9, math.inf, -math.inf, math.nan, 1e-9])
    assert odd.to(ts.float8_e4m3fn).view(ts.uint8).tolist() == [0x7E, 0x7E, 0x7E, 0xFE, 0x7F, 0]
    assert odd.to(ts.float8_e5m2).view(ts.uint8).tolist() == [0x5F, 0x7C, 0x7C, 0xFC, 0x7F, 0]
    assert odd.to(ts.float8_e4m3fnuz).view(ts.uint8).tolist() == [0x80] * 5 + [0]
    assert odd.to(ts.float8_e8m0fnu).view(ts.uint8).tolist()[2:5] == [0xFF] * 3


def test_halves_round_to_nearest_even(device: Any) -> None:
    rng = np.random.default_rng(3)
    parts = (rng.standard_normal((500, 2)) * 2.0 ** rng.integers(-30, 18, (500, 2))).astype(np.float32)
    x = ts.tensor(parts.view(np.complex64)[:, 0], device=device).chalf()
    with np.errstate(over="ignore"):
        assert x.cpu().view(ts.int16).tolist() == parts.astype(np.float16).view(np.int16).reshape(-1).tolist()
    assert struct.pack("<2e", 1, 2) == bytes(ts.tensor([1 + 2j]).chalf().view(ts.uint8).tolist())


def test_linear_algebra_refuses_complex32(device: Any) -> None:
    """Also the operators that stand in linalg alone, whose parts would not be asked."""
    x = ts.ones(40, 40, dtype=ts.complex64, device=device).to(ts.complex32)
    for call in (
        ts.linalg.matmul,
        ts.linalg.multi_dot,
        ts.linalg.matrix_exp,
        ts.matrix_exp,
        ts.linalg.solve,
        ts.matmul,
    ):
        with pytest.raises((NotImplementedError, RuntimeError, TypeError)):
            call(x, x) if call in (ts.linalg.matmul, ts.linalg.solve, ts.matmul) else call(x)


def test_norms_of_complex32_do_not_overflow_on_the_way(device: Any) -> None:
    x = ts.full((5,), 200.0, device=device).to(ts.complex32)
    for order, wanted in ((2, 447.2), (3, 342.0), (1, 1000.0)):
        found = ts.linalg.vector_norm(x, order)
        assert found.dtype is ts.float16 and abs(found.item() - wanted) < 1
