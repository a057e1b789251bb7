"""Generated matrix products against NumPy in float64."""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.testing.seeds import turn

RNG = np.random.default_rng(0)


def random(*shape: int, dtype: str = "float32") -> Any:
    if "int" in dtype:
        return ts.tensor(RNG.integers(0, 50, shape)).to(getattr(ts, dtype))
    return ts.tensor(RNG.standard_normal(shape)).to(getattr(ts, dtype))


def exact(x: Any) -> Any:
    return x.cpu().to(ts.int64 if "int" in str(x.dtype) else ts.float64).numpy()


def check(out: Any, expected: Any, tolerance: float) -> None:
    assert out.device.type == "opencl"
    np.testing.assert_allclose(exact(out), expected, rtol=tolerance, atol=tolerance * max(1, np.abs(expected).max()))


LAYOUTS = {
    "plain": lambda x: x,
    "transposed": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "stepped": lambda x: ts.stack([x, x], -1)[..., 0],
}


@pytest.mark.parametrize(("left", "right"), [*product(LAYOUTS, LAYOUTS)])
@pytest.mark.parametrize("sizes", turn([(33, 45, 70), (100, 3, 40), (1, 130, 9)], 3))
def test_layouts(schedule: str, left: str, right: str, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    a, b = LAYOUTS[left](random(m, k).to("opencl")), LAYOUTS[right](random(k, n).to("opencl"))
    check(a @ b, exact(a) @ exact(b), 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "uint8", "int32", "int64"])
def test_dtypes(schedule: str, dtype: str) -> None:
    a, b = random(37, 50, dtype=dtype).to("opencl"), random(50, 41, dtype=dtype).to("opencl")
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-12}.get(dtype, 0)
    expected = exact(a) @ exact(b)
    check(a @ b, expected % 256 if dtype == "uint8" else expected, tolerance)


@pytest.mark.parametrize(
    "shapes", [((3, 1, 33, 7), (2, 7, 5)), ((5, 4, 6), (6, 3)), ((2, 3, 4, 5, 6), (3, 1, 6, 2)), ((7,), (4, 7, 3))]
)
def test_batches_broadcast(schedule: str, shapes: Any) -> None:
    a, b = (random(*shape).to("opencl") for shape in shapes)
    check(a @ b, exact(a) @ exact(b), 1e-5)


@pytest.mark.parametrize("n", [40, 5])
def test_linear_adds_its_bias(schedule: str, n: int) -> None:
    x, w, b = random(6, 11, 30).to("opencl"), random(n, 30).to("opencl"), random(n).to("opencl")
    check(ts.nn.functional.linear(x, w, b), exact(x) @ exact(w).T + exact(b), 1e-5)
    check(ts.nn.functional.linear(x, w), exact(x) @ exact(w).T, 1e-5)


def test_addmm(schedule: str) -> None:
    a, b = random(20, 30).to("opencl"), random(30, 40).to("opencl")
    for addend in (random(20, 40), random(40), random(20, 1)):
        check(ts.addmm(addend.to("opencl"), a, b), exact(addend) + exact(a) @ exact(b), 1e-5)


@pytest.mark.parametrize("n", [30, 4])
def test_long_sums_are_split(schedule: str, opencl: Any, n: int) -> None:
    opencl._devices[0] = dataclasses.replace(opencl.device(0), compute_units=16)  # more than there are tiles
    a, b, c = random(20, 5000).to("opencl"), random(5000, n).to("opencl"), random(n).to("opencl")
    before = opencl.statistics.launches
    check(ts.addmm(c, a, b), exact(a) @ exact(b) + exact(c), 1e-5)
    assert opencl.statistics.launches == before + 2  # the parts, then their sum


def test_storage_offsets(schedule: str) -> None:
    whole = random(50, 60).to("opencl")
    for start in (0, 1, 7):
        a, b = whole[start : start + 20, 3:40], whole[2:39, start:]
        check(a @ b, exact(a) @ exact(b), 1e-5)


def test_nan_and_infinity_spread_as_they_should(schedule: str) -> None:
    a, b = ts.zeros(3, 4), ts.ones(4, 20)
    a[0, 1], a[1, 2] = float("nan"), float("inf")
    out = (a.to("opencl") @ b.to("opencl")).cpu()
    assert out[0].isnan().all() and out[1].isinf().all() and (out[2] == 0).all()


@pytest.mark.parametrize("sizes", [(33, 45, 300), (3, 70, 1100), (50, 2, 4200)])
def test_factors_that_lie_along_a_long_sum(schedule: str, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    a, b = random(m + 1, k + 3).to("opencl"), random(n, k + 3).to("opencl")
    check(a[1:, 3:] @ b[:, 3:].T, exact(a)[1:, 3:] @ exact(b)[:, 3:].T, 1e-5)
    check(a[1:, :k].double() @ b[:, :k].double().T, exact(a)[1:, :k] @ exact(b)[:, :k].T, 1e-12)


@pytest.mark.parametrize("dtype", [ts.float32, ts.float64, ts.float16, ts.int64, ts.int32])
def test_matrices_by_vectors(schedule: str, dtype: ts.dtype) -> None:
    """On either side, in either order of memory, of vectors with gaps, into results with gaps."""
    for m, k in turn([(16, 16), (17, 33), (300, 257), (1000, 70), (40, 8192), (40, 8193), (5, 300)], 3):
        ts.manual_seed(0)
        a, v, w = ((ts.randn(*shape) * 4).round().to(dtype) for shape in ((m, k), (k,), (m,)))
        there = [x.to("opencl") for x in (a, v, w)]
        gaps = ts.zeros(k, 3, dtype=dtype, device="opencl")
        gaps[:, 1] = there[1]
        turned = there[0].t().contiguous().t()
        out = ts.zeros(m, 2, dtype=dtype, device="opencl")
        ts.mm(there[0], gaps[:, 1:2], out=out[:, 1:])
        made = [
            there[0] @ there[1],
            turned @ there[1],
            there[0] @ gaps[:, 1],
            out[:, 1],
            (turned @ there[1][:, None])[:, 0],
        ]
        for found in made:
            assert ts.allclose(found.cpu().double(), (a @ v).double(), rtol=2e-3, atol=1e-3), (m, k)
        for found in (there[2] @ there[0], there[2] @ turned, (there[2][None] @ there[0])[0]):
            assert ts.allclose(found.cpu().double(), (w @ a).double(), rtol=2e-3, atol=1e-3), (m, k)
        assert (out[:, 0] == 0).all().item()
