"""scan and cat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kernel_harness as h
import numpy as np
import pytest
from kernel_harness import REDUCTIONS, Array, Tensors

REFERENCE: dict[str, Callable[..., Array]] = {
    "sum": np.cumsum,
    "prod": np.cumprod,
    "max": np.maximum.accumulate,
    "min": np.minimum.accumulate,
}


def scan(x: Array, op: str, out: Array, compute: Any, positions: Array | None = None) -> None:
    outputs = [out] if positions is None else [out, positions]
    h.call("scan", outputs, [x], opcode=REDUCTIONS.index(op), compute=compute)


@pytest.mark.parametrize("op", REFERENCE)
@pytest.mark.parametrize("dtype", ["i4", "i8", "u8", "f8", "f4"])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (4, 3000), (200, 6, 11), (1100, 3), (2, 700, 5), (40, 3, 50)])
def test_scan(shape: tuple[int, ...], dtype: str, op: str, rng: np.random.Generator) -> None:
    x = rng.integers(1, 4, shape).astype(dtype) if op != "sum" else rng.integers(0, 50, shape).astype(dtype)
    if op == "prod" and dtype[0] == "f":
        x = np.exp2(x - 2).astype(dtype)
    for view in (x, x[..., ::-1], x.T):
        out = np.empty_like(view)
        scan(view, op, out, dtype)
        wide = view.astype("f8") if dtype == "f4" else view
        np.testing.assert_array_equal(out, REFERENCE[op](wide, axis=-1).astype(dtype))


@pytest.mark.parametrize("op", ["max", "min"])
def test_positions_are_last_occurrences_and_nan_wins(op: str) -> None:
    x = np.array([1.0, 1.0, 0.0, 2.0, np.nan, 3.0, np.nan, 5.0], "f4")
    out, at = np.empty_like(x), np.empty(8, "i8")
    scan(x, op, out, "f4", at)
    np.testing.assert_array_equal(out, REFERENCE[op](x))
    assert at.tolist() == ([0, 1, 1, 3, 4, 4, 6, 6] if op == "max" else [0, 1, 2, 2, 4, 4, 6, 6])


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1", "f2"])
@pytest.mark.parametrize("shape", [(1,), (3, 700), (5, 64, 33), (2000, 3), (2, 1500, 4)])
def test_positions_of_any_layout(shape: tuple[int, ...], dtype: str, op: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 100, shape).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x[..., x.shape[-1] // 2] = np.nan
        x.flat[:: max(1, x.size // 5)] = np.inf
    for view in (x, x[..., ::-1], x.T, np.sort(x, -1)):
        out, at = np.empty_like(view), np.empty(view.shape, "i8", "F" if view.flags.f_contiguous else "C")
        scan(view, op, out, "f4" if dtype == "f2" else dtype, at)
        want = REFERENCE[op](view, axis=-1)
        np.testing.assert_array_equal(out, want)
        where = np.arange(view.shape[-1])
        found = np.where((view == want) | np.isnan(view.astype("f8")), where, 0)  # the last of equals, the last NaN
        np.testing.assert_array_equal(at, np.maximum.accumulate(found, axis=-1))


@pytest.mark.parametrize("op", ["sum", "prod"])
@pytest.mark.parametrize("dtype", ["i8", "f8", "f4"])
def test_scans_of_every_other_element(op: str, dtype: str, rng: np.random.Generator) -> None:
    x = (
        np.exp2(rng.integers(-1, 2, (9, 130))).astype(dtype)
        if op == "prod"
        else rng.integers(0, 9, (9, 130)).astype(dtype)
    )
    for view in (x[:, ::2], x[:, 1::2], x[::2].T, np.broadcast_to(x[:, :1], x.shape)):
        out = np.zeros((*view.shape[:-1], 2 * view.shape[-1]), dtype)[..., ::2]
        scan(view, op, out, dtype)
        wide = view.astype("f8") if dtype == "f4" else view
        np.testing.assert_array_equal(out, REFERENCE[op](wide, axis=-1).astype(dtype))


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "f2", h.BFLOAT16], ids=str)
def test_small_dtypes_accumulate_wide(dtype: Any, rng: np.random.Generator) -> None:
    x = rng.integers(0, 2, (5, 90)).astype(dtype)
    floating = np.dtype(dtype).kind == "f" or np.dtype(dtype) == h.BFLOAT16
    out = np.empty(x.shape, dtype if floating else "i8")
    scan(x, "sum", out, "f4" if floating else "i8")
    np.testing.assert_array_equal(out, np.cumsum(x.astype("f8"), -1).astype(out.dtype))


def test_a_long_float_scan_keeps_its_digits(rng: np.random.Generator) -> None:
    x = rng.uniform(size=500_000).astype("f4")
    out = np.empty_like(x)
    scan(x, "sum", out, "f4")
    assert h.ulp_error(out, np.cumsum(x.astype("f8"))).max() <= 0.51


def test_unknown_opcode() -> None:
    with pytest.raises(h.KernelError, match="scan: expected opcode"):
        scan(np.ones(3, "f4"), "any", np.ones(3, "f4"), "f4")


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["?", "f4", "i8", "c16", h.BFLOAT16], ids=str)
def test_cat(dim: int, dtype: Any, rng: np.random.Generator) -> None:
    parts = []
    for k in (1, 4, 2):
        shape = [5, 6, 7]
        shape[dim] = k
        parts.append(rng.integers(0, 2, shape).astype(dtype))
    strided = [parts[0], np.asfortranarray(parts[1]), parts[2][::-1]]
    for inputs in (parts, strided, [parts[0], np.empty(0, dtype), parts[1], parts[2]]):
        want = np.concatenate([p for p in inputs if p.size], dim)
        for out in (np.empty(want.shape, dtype), np.empty(want.shape[::-1], dtype).T):
            h.call("cat", [out], inputs, [Tensors(0, len(inputs)), dim])
            np.testing.assert_array_equal(out, want)


def test_cat_checks_its_sizes() -> None:
    with pytest.raises(h.KernelError, match="cat: expected pieces of 5"):
        h.call("cat", [np.empty(5)], [np.ones(3), np.ones(3)], [Tensors(0, 2), 0])
