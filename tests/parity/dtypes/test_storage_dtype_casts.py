"""complex32 and the floats of 8 bits beside torch, bit for bit: every pattern of their bits cast to and from every dtype."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

FLOAT8 = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
STORAGE = ["complex32", *FLOAT8]
USUAL = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16"]
USUAL += ["float32", "float64", "complex64", "complex128"]


def patterns(name: str) -> bytes:
    """Elements of a dtype: every pattern of its bits or of its upper half, and ties of the narrower floats."""
    halves = np.arange(65536, dtype=np.uint16)
    if name.startswith("float8") or name in ("uint8", "int8"):
        return np.arange(256, dtype=np.uint8).tobytes()
    if name == "bool":
        return b"\0\1"
    if name == "complex32":
        return np.stack([halves, halves[::-1]], 1).tobytes()
    if name in ("float16", "bfloat16", "uint16", "int16"):
        return halves.tobytes()
    upper = halves.astype(np.uint32) << 16
    # Beside each: what rounds to nearest even and what just does not.
    words = np.concatenate([upper + low for low in (0, 1, 0x1000, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]).view(np.float32)
    if name == "float32":
        return words.tobytes()
    with np.errstate(all="ignore"):
        if name == "float64":
            return np.concatenate([words.astype(np.float64), words.astype(np.float64) * (1 + 2**-40)]).tobytes()
        if name.startswith("complex"):
            parts = np.stack([words, words[::-1]], 1)
            return parts.astype(np.float32 if name == "complex64" else np.float64).tobytes()
    numbers = np.concatenate([np.arange(-70000, 70000), (1 << np.arange(62)), 3 - (1 << np.arange(62))])
    return numbers.astype(name).tobytes()


def cast(m: Any, data: bytes, source: str, target: str) -> Any:
    """The result's bytes, of a dense tensor and of every other element."""
    whole = m.frombuffer(bytearray(data), dtype=m.uint8)
    whole = whole.view(m.bool) if source == "bool" else whole.view(getattr(m, source))
    dense, spread = whole.to(getattr(m, target)), whole[::2].to(getattr(m, target))
    return [
        whole_nans(m.empty(t.shape, dtype=t.dtype).copy_(t).view(m.uint8).numpy(), target) for t in (dense, spread)
    ], dense


def whole_nans(found: Any, target: str) -> Any:
    """The bytes, with every NaN of a usual dtype as one: which payload it keeps hangs on the processor."""
    kind = {"float16": np.float16, "float32": np.float32, "float64": np.float64, "complex64": np.float32}
    kind |= {"complex128": np.float64, "complex32": np.float16}
    if target == "bfloat16":
        words = found.view(np.uint16).copy()
        words[(words & 0x7FFF) > 0x7F80] = 0x7FC0
        return words.view(np.uint8)
    if target in kind:
        floats = found.view(kind[target]).copy()
        floats[np.isnan(floats)] = np.nan
        return floats.view(np.uint8)
    return found


def undefined(data: bytes, source: str, target: str) -> Any:
    """Where torch leaves the result open: integers out of range."""
    whole = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(getattr(torch, source))
    if target not in USUAL[1:9] or not (whole.is_floating_point() or whole.is_complex()):
        return None
    real = (whole.real if whole.is_complex() else whole).double()
    info = torch.iinfo(getattr(torch, target))
    low, high = max(info.min - 1, -(2.0**63)), min(info.max + 1, 2.0**63)
    return ~((real >= float(low)) & (real < float(high))).numpy() | (real == float(info.min - 1)).numpy()


PAIRS = [(a, b) for a in STORAGE for b in [*USUAL, *STORAGE]] + [(a, b) for a in USUAL for b in STORAGE]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("source", "target"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_every_pattern(source: str, target: str) -> None:
    data = patterns(source)
    (ours, ours_spread), mine = cast(ts, data, source, target)
    (theirs, theirs_spread), _ = cast(torch, data, source, target)
    item = mine.element_size()
    ours, theirs = ours.reshape(-1, item), theirs.reshape(-1, item)
    open_ = undefined(data, source, target)
    kept = slice(None) if open_ is None else ~open_
    differs = np.nonzero((ours[kept] != theirs[kept]).any(1))[0]
    values = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(getattr(torch, source))
    assert not len(differs), (
        f"{len(differs)}, first {values[differs[:3]]}: {ours[kept][differs[:3]]}, torch {theirs[kept][differs[:3]]}"
    )
    spread, theirs_spread = ours_spread.reshape(-1, item), theirs_spread.reshape(-1, item)
    kept = slice(None) if open_ is None else ~open_[::2]
    assert (spread[kept] == theirs_spread[kept]).all()


@pytest.mark.parametrize("name", STORAGE)
def test_every_pattern_as_a_number(name: str) -> None:
    """item, tolist, tensor of numbers."""
    data = patterns(name)[:131072]
    lists = [m.frombuffer(bytearray(data), dtype=m.uint8).view(getattr(m, name)).tolist() for m in (ts, torch)]
    np.testing.assert_array_equal(*[np.array(values) for values in lists])
    made = [m.tensor(lists[1], dtype=getattr(m, name)).view(m.uint8).tolist() for m in (ts, torch)]
    assert made[0] == made[1]
    odd = [0.3, -2.7, 1e-9, 464.0, 465.0, 1e6, -1e6, float("inf"), float("nan"), 65519.0, 65520.0, 3, True]
    made = [m.tensor(odd, dtype=getattr(m, name)).view(m.uint8).tolist() for m in (ts, torch)]
    assert made[0] == made[1]
