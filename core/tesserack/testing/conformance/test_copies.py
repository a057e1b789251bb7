"""Bytes that travel: between host and device, among devices, from dtype to dtype, from any layout to any other."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.testing import cases
from tesserack.testing.conformance.card import Card, Record
from tesserack.testing.conformance.exactly import expect
from tesserack.testing.samples import Input

SIZES = (0, 1, 7, 64, 1000, 70_001)
DTYPES = (*cases.DTYPES, "uint16", "uint32", "uint64")


def pattern(count: int, seed: int = 1) -> np.ndarray[Any, Any]:
    """Bytes without a period that a wrong offset could hide behind."""
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def bytes_of(tensor: ts.Tensor) -> bytes:
    """The elements of a tensor as they lie in memory, bit for bit."""
    flat = tensor.cpu().contiguous().reshape(-1)
    return bytes(flat.view(ts.uint8).numpy().tobytes()) if flat.numel() else b""


def host(count: int, dtype: str, seed: int = 1) -> ts.Tensor:
    """A cpu tensor of arbitrary bit patterns, NaN payloads among them."""
    raw = pattern(count * getattr(ts, dtype).itemsize, seed)
    if dtype == "bool":
        raw = raw % 2
    return ts.from_numpy(raw.copy()).view(getattr(ts, dtype)) if count else ts.empty(0, dtype=getattr(ts, dtype))


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip(dtype: str, count: int, card: Card, record: Record) -> None:
    """Host to device and back keeps every bit."""
    record.case(op="to (host and back)", dtype=dtype, direction="forward")
    card.needs(dtype)
    here = host(count, dtype)
    there = here.to(card.device)
    assert there.device.type == card.name
    assert bytes_of(there) == bytes_of(here)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("dtype", ("float32", "uint8", "int64", "bfloat16"))
def test_within_the_device(dtype: str, count: int, card: Card) -> None:
    """A clone keeps every bit and shares no memory."""
    card.needs(dtype)
    original = host(count, dtype).to(card.device)
    copy = original.clone()
    assert bytes_of(copy) == bytes_of(original)
    before = bytes_of(original)
    copy.zero_()
    assert bytes_of(original) == before, "writing to the clone changed the original"
    if count:
        assert copy.data_ptr() != original.data_ptr()


_ALONE = """
import sys
import numpy as np
import tesserack as ts
name, same = sys.argv[1], True
for dtype in (ts.uint8, ts.int16, ts.float32):
    here = ts.from_numpy(np.arange(301 * dtype.itemsize).astype(np.uint8)).view(dtype)
    there, target, twin = here.to(name), ts.zeros(400, dtype=dtype).to(name), ts.zeros(400, dtype=dtype)
    target[13:213].copy_(here[101:])
    twin[13:213].copy_(here[101:])
    parts = [(there[k:], here[k:]) for k in (7, 13, 101)] + [(there[::2].clone(), here[::2]), (there[::2], here[::2])]
    for x, y in ((there, here), (target, twin), *parts):
        same = same and x.cpu().contiguous().view(ts.uint8).tolist() == y.contiguous().view(ts.uint8).tolist()
sys.exit(not same)
"""


def copies(name: str) -> bool:
    """Whether another device works here: what the host gives it comes back, from any offset. Else the fault is its own,
    and where it ends a process, that is not this one."""
    command = [sys.executable, "-c", _ALONE, name]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=300)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def test_between_all_devices(card: Card) -> None:
    """To and from every other device that works here, those of the same backend too, in every dtype, at any offset."""
    others = [name for name in ts.backends.list() if name != card.name and copies(name)]
    others += [f"{card.name}:{index}" for index in range(1, card.capabilities["device_count"])]
    for dtype in sorted(card.dtypes & set(DTYPES)):
        exact = host(301, dtype)
        here = exact.to(card.device)
        _same(bytes_of(here), bytes_of(exact), dtype, f"from the host to {card.name} and back")
        for name in others:
            there = here.to(name)
            _same(bytes_of(there), bytes_of(exact), dtype, f"from {card.name} to {name}")
            _same(bytes_of(there.to(card.device)), bytes_of(exact), dtype, f"from {name} to {card.name}")
            target, taken = (
                ts.zeros(400, dtype=here.dtype, device=card.device),
                ts.zeros(400, dtype=here.dtype).to(name),
            )
            target[13:213].copy_(there[101:])
            way = f"from {name}, offset by 101 elements, to {card.name}, offset by 13"
            _same(bytes_of(target[13:213]), bytes_of(exact[101:]), dtype, way)
            _same(bytes_of(target[:13]) + bytes_of(target[213:]), bytes_of(ts.zeros_like(exact[:200])), dtype, way)
            taken[13:213].copy_(here[101:])
            way = f"from {card.name}, offset by 101 elements, to {name}, offset by 13"
            _same(bytes_of(taken[13:213]), bytes_of(exact[101:]), dtype, way)
            wide = ts.zeros(7, 301, dtype=here.dtype, device=card.device)[:, ::2]
            wide.copy_(there[::2])
            _same(bytes_of(wide[3]), bytes_of(exact[::2]), dtype, f"strided, from {name} to {card.name}")


def _same(found: bytes, wanted: bytes, dtype: str, way: str) -> None:
    if found != wanted:
        at = next(i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
        pytest.fail(f"{dtype} {way}: byte {at} of {len(wanted)} is {found[at]}, expected {wanted[at]}", pytrace=False)


LAYOUTS: dict[str, Any] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t().contiguous().t(),
    "stepped": lambda x: ts.stack((x, x), -1).reshape(x.shape[0], -1)[:, 1::2],
    "flipped": lambda x: x.flip(1).contiguous()[:, ::-1],
    "offset": lambda x: ts.cat((x[:2], x))[2:],
    "narrow": lambda x: ts.cat((x[:, :3], x, x[:, :1]), 1)[:, 3:-1],
}


@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("source", LAYOUTS)
@pytest.mark.parametrize("shape", ((3, 5), (37, 129)))
def test_layouts(source: str, target: str, shape: tuple[int, int], card: Card) -> None:
    """copy_ from any layout into any other, on the device and from and to the host."""
    values = host(shape[0] * shape[1], card.real).nan_to_num(1.0, 2.0, 3.0).reshape(shape)
    for here, there in ((card.device, card.device), ("cpu", card.device), (card.device, "cpu")):
        to = LAYOUTS[target](ts.zeros(shape, device=there))
        to.copy_(LAYOUTS[source](values.to(here)))
        what = f"{shape[0]} x {shape[1]}, from {source} on {here} to {target} on {there}"
        expect(to, cases.values(values), f"copy_cast of {card.real}", what, card)


def test_a_copy_writes_nothing_else(card: Card) -> None:
    """What surrounds the target stays."""
    for begin, end in ((0, 1), (1, 2), (3, 17), (63, 65), (1, 199)):
        around = ts.full((200,), 7, dtype=ts.uint8).to(card.device)
        around[begin:end].copy_(ts.full((end - begin,), 9, dtype=ts.uint8))
        expected = np.full(200, 7, np.uint8)
        expected[begin:end] = 9
        expect(around, expected, "copy_cast of uint8", f"bytes {begin} to {end} of 200 written", card)


def test_broadcast(card: Card) -> None:
    """Sources grow to the target's shape."""
    to = ts.zeros(4, 3, 2, device=card.device)
    to.copy_(ts.tensor([1.0, 2.0], device=card.device))
    assert to.cpu().tolist() == [[[1.0, 2.0]] * 3] * 4
    to.copy_(ts.tensor([[[5.0]], [[6.0]], [[7.0]], [[8.0]]]))
    assert to[:, 2, 1].cpu().tolist() == [5.0, 6.0, 7.0, 8.0]


CASTS = [(a, b) for a in cases.DTYPES for b in cases.DTYPES if a != b]


@pytest.mark.parametrize(("source", "dtype"), CASTS)
def test_cast(source: str, dtype: str, card: Card, record: Record) -> None:
    """Rounding to nearest even, truncation towards zero, wrap-around, overflow to infinity: as on the cpu."""
    record.case(op=f"to (from {source})", dtype=dtype, direction="forward")
    card.needs(source, dtype)
    numbers = np.arange(-120, 131, dtype=np.float64)
    if cases.is_floating(source):
        numbers = np.concatenate((numbers * 0.75, numbers / 256 + 1, numbers * 2.0**-10))
        if cases.is_floating(dtype):
            numbers = np.concatenate((numbers, numbers * 600, numbers * 2.0**-20, [np.inf, -np.inf, np.nan, -0.0]))
    if dtype in ("uint8", "bool") and cases.is_floating(source):
        numbers = np.abs(numbers)  # a negative float has no natural number to become
    here = ts.from_numpy(numbers).to(getattr(ts, source))
    expected = cast_by_numpy(cases.values(here), dtype)
    for layout in ("contiguous", "stepped"):
        there = here.to(card.device) if layout == "contiguous" else ts.stack((here, here), 1).to(card.device)[:, 1]
        found = there.to(getattr(ts, dtype))
        assert found.device.type == card.name
        expect(found, expected, f"copy_cast of {source} to {dtype}", layout, card)


@pytest.mark.parametrize(
    ("source", "dtype"), [("float32", "float16"), ("float64", "float16"), ("float64", "float32"), ("int32", "float16")]
)
def test_casts_beyond_the_largest_number(source: str, dtype: str, card: Card, record: Record) -> None:
    """Become infinite, from half a step beyond it on; not the largest number."""
    record.case(op=f"to (from {source})", dtype=dtype, direction="forward")
    card.needs(source, dtype)
    largest = float(np.finfo(dtype).max)
    step = largest - float(np.nextafter(np.finfo(dtype).max, np.zeros((), dtype)))
    given = (
        np.array([largest, largest + step / 2, largest + 2 * step, largest * 1.5]).round()
        if source == "int32"
        else (np.array([largest, largest + step / 4, largest + step / 2, largest * 4, np.inf]))
    )
    given = np.concatenate((given, -given))
    with np.errstate(over="ignore"):
        expected = given.astype(source).astype(dtype).astype(np.float64)
    found = cases.values(ts.from_numpy(given.astype(source)).to(card.device).to(getattr(ts, dtype)))
    wrong = np.flatnonzero(found != expected)
    if wrong.size:
        pytest.fail(
            f"copy_cast of {source} to {dtype} on {card.name}: {given[wrong[0]]:.9g} becomes {found[wrong[0]]:.9g}, "
            f"not {expected[wrong[0]]:.9g}: casts beyond the largest number are infinite",
            pytrace=False,
        )


_WHOLE = {"int64": (62, 53, 40, 33, 32, 31), "int32": (30, 24, 20, 16), "uint32": (31, 30, 24, 16), "int16": (14, 8)}


@pytest.mark.parametrize("dtype", _WHOLE)
@pytest.mark.parametrize("source", ("float32", "float64"))
def test_casts_of_large_numbers(source: str, dtype: str, card: Card, record: Record) -> None:
    """Whole numbers as large as the integer holds, of either sign: not by way of fewer bits."""
    record.case(op=f"to (from {source})", dtype=dtype, direction="forward")
    card.needs(source, dtype)
    numbers = np.array([2.0**k + part for k in _WHOLE[dtype] for part in (0, 2.0 ** max(k - 20, 0), 0.5 * (k < 20))])
    numbers = numbers if dtype.startswith("u") else np.concatenate((numbers, -numbers))
    given = numbers.astype(source)
    for layout, x, array in (("contiguous", given, given), ("stepped", np.repeat(given, 2), given)):
        there = ts.from_numpy(x).to(card.device)[:: len(x) // len(array)]
        found = there.to(getattr(ts, dtype))
        expect(found, array.astype(np.int64).astype(dtype), f"copy_cast of {source} to {dtype}", layout, card)


def cast_by_numpy(values: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """What the numbers become."""
    if cases.is_floating(dtype):
        return cases.rounded(Input(values.astype(np.float64)), dtype)
    if dtype == "bool":
        return np.asarray(values != 0)
    return np.asarray(values.astype(np.int64).astype(dtype).astype(np.int64))


def test_numbers_come_back(card: Card) -> None:
    """item(), tolist() and repr() read the device."""
    x = ts.tensor([[1.5, -2.0], [3.25, 4.0]], device=card.device)
    assert x.tolist() == [[1.5, -2.0], [3.25, 4.0]]
    assert x[1, 0].item() == 3.25
    assert x.t()[::-1].tolist() == [[-2.0, 4.0], [1.5, 3.25]]
    assert "3.25" in repr(x)


def test_numpy_shares_host_memory_or_refuses(card: Card) -> None:
    """numpy() of a tensor whose memory the host cannot reach says what to do."""
    x = ts.ones(3, device=card.device)
    if card.capabilities["host_memory"]:
        x.numpy()[1] = 5.0
        assert x.tolist() == [1.0, 5.0, 1.0]
    else:
        with pytest.raises(TypeError, match="cpu"):
            x.numpy()
