"""Dtypes beyond those that every test goes through, where a device declares them: unsigned integers and complex."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.testing import cases
from tesserack.testing.conformance.card import Card, Record
from tesserack.testing.conformance.exactly import real

UNSIGNED = ("uint16", "uint32", "uint64")
COMPLEX = ("complex64", "complex128")
Case = tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]

# On tensors, and the same on arrays. Operands reach up to the largest number, beyond what signed integers hold.
ON_UNSIGNED: dict[str, Case] = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "sub": (lambda a, b: a - b, lambda a, b: a - b),
    "mul": (lambda a, b: a * b, lambda a, b: a * b),
    "floor_divide": (lambda a, b: a // (b | 1), lambda a, b: a // (b | 1)),
    "remainder": (lambda a, b: a % (b | 1), lambda a, b: a % (b | 1)),
    "maximum": (lambda a, b: ts.maximum(a, b), np.maximum),
    "minimum": (lambda a, b: ts.minimum(a, b), np.minimum),
    "lt": (lambda a, b: a < b, lambda a, b: a < b),
    "ge": (lambda a, b: a >= b, lambda a, b: a >= b),
    "eq": (lambda a, b: a == b, lambda a, b: a == b),
    "bitwise_and": (lambda a, b: a & b, lambda a, b: a & b),
    "bitwise_xor": (lambda a, b: a ^ b, lambda a, b: a ^ b),
    "bitwise_not": (lambda a, b: ~a, lambda a, b: ~a),
    "bitwise_right_shift": (lambda a, b: a >> (b % 9), lambda a, b: a >> (b % 9)),
    "bitwise_left_shift": (lambda a, b: a << (b % 9), lambda a, b: a << (b % 9)),
    "where": (lambda a, b: ts.where(a < b, a, b), lambda a, b: np.where(a < b, a, b)),
    "amax": (lambda a, b: a.amax(1), lambda a, b: a.max(1)),
    "amin": (lambda a, b: a.amin(0), lambda a, b: a.min(0)),
    "argmax": (lambda a, b: a.argmax(1), lambda a, b: a.argmax(1)),
    "any": (lambda a, b: (a % 3).bool().any(1), lambda a, b: (a % 3).any(1)),
    "sort": (lambda a, b: a.sort(1).values, lambda a, b: np.sort(a, 1)),
    "gather": (lambda a, b: a.gather(1, (b % 5).long()), lambda a, b: np.take_along_axis(a, (b % 5).astype("i8"), 1)),
    "flip": (lambda a, b: a.flip(0).contiguous(), lambda a, b: a[::-1]),
    "to float64": (lambda a, b: a.double(), lambda a, b: a.astype(np.float64)),
    "to int32": (lambda a, b: a.int(), lambda a, b: a.astype(np.int32)),
    "to uint8": (lambda a, b: a.to(ts.uint8), lambda a, b: a.astype(np.uint8)),
    "from float32": (lambda a, b: (a % 1000).float().to(a.dtype), lambda a, b: a % 1000),
}
ON_COMPLEX: dict[str, Case] = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "sub": (lambda a, b: a - b, lambda a, b: a - b),
    "mul": (lambda a, b: a * b, lambda a, b: a * b),
    "div": (lambda a, b: a / b, lambda a, b: a / b),
    "neg": (lambda a, b: -a, lambda a, b: -a),
    "conj": (lambda a, b: a.conj() + 0, lambda a, b: a.conj()),
    "real": (lambda a, b: a.real + 0, lambda a, b: a.real),
    "imag": (lambda a, b: a.imag + 0, lambda a, b: a.imag),
    "abs": (lambda a, b: a.abs(), lambda a, b: np.abs(a)),
    "angle": (lambda a, b: a.angle(), lambda a, b: np.angle(a)),
    "exp": (lambda a, b: a.exp(), lambda a, b: np.exp(a)),
    "sqrt": (lambda a, b: a.sqrt(), lambda a, b: np.sqrt(a)),
    "eq": (lambda a, b: a == b, lambda a, b: a == b),
    "sum": (lambda a, b: a.sum(1), lambda a, b: a.sum(1)),
    "matmul": (lambda a, b: a @ b.t(), lambda a, b: a @ b.T),
    "cat": (lambda a, b: ts.cat((a, b.conj())), lambda a, b: np.concatenate((a, b.conj()))),
    "flip": (lambda a, b: a.flip(1), lambda a, b: a[:, ::-1]),
    "transposed": (lambda a, b: a.t().contiguous(), lambda a, b: a.T),
    "where": (lambda a, b: ts.where(a.real > 0, a, b), lambda a, b: np.where(a.real > 0, a, b)),
}


def operands(dtype: str, seed: int) -> Any:
    """Numbers from the whole range of unsigned integers; complex ones of any angle."""
    random = np.random.default_rng(seed)
    if dtype in COMPLEX:
        return (random.normal(size=(7, 5)) + 1j * random.normal(size=(7, 5))).astype(dtype)
    array = random.integers(0, np.iinfo(dtype).max, (7, 5), dtype=dtype, endpoint=True)
    array[0, :2] = np.iinfo(dtype).max, 0
    return array


def check(name: str, case: Case, dtype: str, card: Card) -> None:
    """Contiguous operands, and such as lie the other way round."""
    arrays = operands(dtype, 1), operands(dtype, 2)
    with np.errstate(all="ignore"):
        expected = np.asarray(case[1](*arrays))
    for layout in ("contiguous", "transposed"):
        if layout == "contiguous":
            given = [ts.from_numpy(a.copy()).to(card.device) for a in arrays]
        else:
            given = [ts.from_numpy(np.ascontiguousarray(a.T)).to(card.device).t() for a in arrays]
        found = case[0](*given).cpu().resolve_conj().numpy()
        tolerance = 2e-5 if dtype in ("complex64", "uint16") else 1e-12
        exact = expected.dtype.kind not in "fc"
        same = found == expected if exact else np.isclose(found, expected, tolerance, tolerance)
        if found.shape != expected.shape or not same.all():
            at = tuple(np.argwhere(~same)[0].tolist()) if found.shape == expected.shape else ()
            told = f"at {list(at)} {found[at]} instead of {expected[at]}" if at else f"shape {found.shape}"
            pytest.fail(f"{name} of {dtype} on {card.name}, {layout}: {told}", pytrace=False)


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("name", ON_UNSIGNED)
def test_unsigned(name: str, dtype: str, card: Card, record: Record) -> None:
    """As NumPy computes, wrapping around."""
    record.case(op=name, dtype=dtype, direction="forward")
    other = name.split()[-1]  # of casts
    card.needs(dtype, *([other] if other in cases.DTYPES else []))
    check(name, ON_UNSIGNED[name], dtype, card)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", ON_COMPLEX)
def test_complex(name: str, dtype: str, card: Card, record: Record) -> None:
    """As NumPy computes."""
    record.case(op=name, dtype=dtype, direction="forward")
    card.needs(dtype)
    check(name, ON_COMPLEX[name], dtype, card)


@pytest.mark.parametrize("dtype", (*UNSIGNED, *COMPLEX))
def test_declared_dtype_is_the_devices_own(dtype: str, card: Card) -> None:
    """What is declared is computed without the cpu, as far as the required kernels go."""
    card.needs(dtype)
    here = getattr(ts, dtype)
    x = ts.ones(6, dtype=here, device=card.device)
    assert x.dtype is here
    assert (x + x).reshape(2, 3).t().contiguous().tolist() == [[2, 2]] * 3
    assert x.gather(0, ts.arange(0, 6, 2, device=card.device)).tolist() == [1] * 3
    assert ts.backends.fallbacks() == {}, f"{dtype} is declared but computed on the cpu"


def test_limits_are_kept(card: Card) -> None:
    """Tensors of as many dimensions as there may be, and of the largest block, work; kernels take what is declared."""
    most = int(card.capabilities["max_ndim"]) or 8
    for ndim in range(1, max(most, 8) + 1):  # the core folds those beyond the limit, or goes another way
        shape = [2 if d % 2 else 3 for d in range(ndim)]
        values = (np.arange(np.prod(shape), dtype=np.float64) % 101).reshape(shape)
        x = real(values, card).permute(*reversed(range(ndim)))
        assert np.array_equal((x * 2 + x[:1]).cpu().numpy(), values.T * 2 + values.T[:1]), f"{ndim} dimensions"
        assert np.array_equal(x.sum(0).cpu().numpy(), values.T.sum(0)), f"the sum of {ndim} dimensions"
    largest = int(card.properties["max_allocation"])
    if 0 < largest < 1 << 28:
        x = ts.full((largest,), 3, dtype=ts.uint8, device=card.device)
        assert x[-1].item() == 3
        with pytest.raises(ts.OutOfMemoryError):
            ts.empty(2 * largest + 1, dtype=ts.uint8, device=card.device)
