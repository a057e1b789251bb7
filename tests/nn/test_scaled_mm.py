"""Products of matrices stored in few bits, against float64; each recipe on the kernel and on what stands in for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack import _native
from tesserack.nn.functional import ScalingType, SwizzleType, scaled_mm

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
PACKED = {
    "float4_e2m1fn_x2": E2M1,
    "int4_x2": np.array([*range(8), *range(-8, 0)]),
    "uint4_x2": np.arange(16),
}
BLOCKS = {
    ScalingType.TensorWise: None,
    ScalingType.RowWise: (1, None),
    ScalingType.BlockWise1x16: (1, 16),
    ScalingType.BlockWise1x32: (1, 32),
    ScalingType.BlockWise1x128: (1, 128),
    ScalingType.BlockWise128x128: (128, 128),
}
SIZES = ((1, 32, 1), (3, 64, 5), (33, 288, 37), (130, 160, 65))


def stored(rng: Any, dtype: str, rows: int, columns: int) -> tuple[ts.Tensor, Any]:
    """A matrix, and what its elements are."""
    if dtype in PACKED:
        codes = rng.integers(0, 16, (rows, columns))
        packed = (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)
        return ts.from_numpy(packed).view(getattr(ts, dtype)), PACKED[dtype][codes]
    made = ts.from_numpy(rng.standard_normal((rows, columns)).astype(np.float32)).to(getattr(ts, dtype))
    return made, made.to(ts.float64).numpy()


def scales(rng: Any, kind: str, recipe: ScalingType, rows: int, columns: int) -> tuple[ts.Tensor, Any]:
    """Scales, and the same for each element."""
    down, across = BLOCKS[recipe] or (rows, columns)
    across = across or columns
    shape = -(-rows // down), -(-columns // across)
    values = ts.from_numpy(np.exp2(rng.integers(-3, 4, shape)).astype(np.float32))
    if kind == "float32":
        values = values * 1.25
    values = values.to(getattr(ts, kind))
    each = np.kron(values.to(ts.float64).numpy(), np.ones((down, across)))[:rows, :columns]
    return values, each


CASES = [
    *[("float8_e4m3fn", "float32", recipe) for recipe in ScalingType],
    ("float8_e5m2", "float32", ScalingType.RowWise),
    ("float8_e4m3fn", "float8_e8m0fnu", ScalingType.BlockWise1x32),
    ("float4_e2m1fn_x2", "float8_e8m0fnu", ScalingType.BlockWise1x32),
    ("float4_e2m1fn_x2", "float8_e4m3fn", ScalingType.BlockWise1x16),
    ("float6_e2m3fn", "float8_e8m0fnu", ScalingType.BlockWise1x32),
    ("float6_e3m2fn", "float8_e8m0fnu", ScalingType.BlockWise1x32),
    ("float4_e2m1fn", "float8_e8m0fnu", ScalingType.BlockWise1x32),
    ("int4", "float32", ScalingType.BlockWise1x128),
    ("uint4", "float32", ScalingType.RowWise),
    ("int4_x2", "float32", ScalingType.BlockWise1x32),
    ("uint4_x2", "float32", ScalingType.BlockWise128x128),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("dtype", "kind", "recipe"), CASES)
def test_recipes(dtype: str, kind: str, recipe: ScalingType, size: tuple[int, int, int], device: Any) -> None:
    rng = np.random.default_rng(0)
    m, k, n = size
    a, values_a = stored(rng, dtype, m, k)
    b, values_b = stored(rng, dtype, n, k)
    scale_a, each_a = scales(rng, kind, recipe, m, k)
    scale_b, each_b = scales(rng, kind, recipe, n, k)
    wanted = (values_a * each_a) @ (values_b * each_b).T
    size_of = (abs(values_a) * each_a) @ (abs(values_b) * each_b).T
    there = [x.to(device) for x in (a, b, scale_a, scale_b)]
    for out, rounding in ((ts.float32, 2.0**-24), (ts.bfloat16, 2.0**-8), (ts.float16, 2.0**-11)):
        found = scaled_mm(there[0], there[1].t(), there[2], recipe, there[3], recipe, output_dtype=out)
        assert found.dtype is out and found.shape == (m, n)
        got = found.cpu().to(ts.float64).numpy()
        fits = abs(wanted) < (6e4 if out is ts.float16 else np.inf)
        error = abs(got - wanted)[fits]
        assert (error <= (size_of * k * 2.0**-24 + abs(wanted) * rounding)[fits]).all(), (out, error.max())


def test_operands_of_different_dtypes() -> None:
    """float4 beside float8, each with scales of its own kind."""
    rng = np.random.default_rng(1)
    a, _ = stored(rng, "float4_e2m1fn_x2", 7, 96)
    b, _ = stored(rng, "float8_e5m2", 9, 96)
    scale_a, _ = scales(rng, "float8_e8m0fnu", ScalingType.BlockWise1x32, 7, 96)
    call = _native._operator_function("_scaled_matmul")
    args = a, b, scale_a, ts.full((1, 1), 0.5), [1, 32], [9, 96], ts.float32
    direct = call(*args)
    exact = (unpack(a) * scale_a.float().repeat_interleave(32, 1)) @ (b.float() * 0.5).t()
    assert ts.allclose(direct, exact, rtol=1e-5, atol=1e-4)


def unpack(x: ts.Tensor) -> ts.Tensor:
    codes = x.view(ts.uint8).numpy()
    return ts.from_numpy(E2M1[np.stack((codes & 15, codes >> 4), 2).reshape(len(codes), -1)].astype(np.float32))


def test_nvfp4_bias_and_swizzled_scales() -> None:
    """float4 with float8_e4m3fn for 16 elements and a number for all; the scales as tensor cores have them."""
    rng = np.random.default_rng(2)
    m, k, n = 140, 96, 33
    a, values_a = stored(rng, "float4_e2m1fn_x2", m, k)
    b, values_b = stored(rng, "float4_e2m1fn_x2", n, k)
    scale_a, each_a = scales(rng, "float8_e4m3fn", ScalingType.BlockWise1x16, m, k)
    scale_b, each_b = scales(rng, "float8_e4m3fn", ScalingType.BlockWise1x16, n, k)
    bias = ts.arange(float(n))
    recipe = [ScalingType.BlockWise1x16, ScalingType.TensorWise]
    wanted = (values_a * each_a) @ (values_b * each_b).T * 0.5 * 3 + np.arange(n)
    swizzled = [swizzle(scale_a), swizzle(scale_b)]
    for given, kind in (([scale_a, scale_b], SwizzleType.NO_SWIZZLE), (swizzled, SwizzleType.SWIZZLE_32_4_4)):
        found = scaled_mm(
            a, b.t(), [given[0], ts.tensor(0.5)], recipe, [given[1], ts.tensor(3.0)], recipe,
            kind, kind, bias=bias, output_dtype=ts.float32,
        )  # fmt: skip
        np.testing.assert_allclose(found.double().numpy(), wanted, rtol=1e-5, atol=1e-3)


def swizzle(scale: ts.Tensor) -> ts.Tensor:
    """Tiles of 128 rows and 4 columns; in a tile row r, column c lies at (r % 32) * 16 + r // 32 * 4 + c."""
    codes = scale.view(ts.uint8).numpy()
    down, across = -(-codes.shape[0] // 128), -(-codes.shape[1] // 4)
    out = np.zeros((down * across, 512), np.uint8)
    for r, c in np.ndindex(*codes.shape):
        out[r // 128 * across + c // 4, r % 128 % 32 * 16 + r % 128 // 32 * 4 + c % 4] = codes[r, c]
    return ts.from_numpy(out.reshape(-1)).view(scale.dtype)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale_a": ts.ones(3)}, r"expected scales of mat_a of \(1, 1\), for TensorWise of a matrix of 4 x 32"),
        ({"mat_b": ts.ones(30, 4).to(ts.float8_e4m3fn)}, "got 32 and 30"),
        ({"mat_a": ts.ones(4, 32)}, "expected matrices of float8, float6, float4, int4 or uint4, got float32"),
        ({"mat_a": ts.ones(4).to(ts.float8_e4m3fn)}, "expected mat_a to be a matrix"),
        ({"output_dtype": ts.int64}, "expected a result of float32, bfloat16 or float16"),
        ({"contraction_dim": (0, 0)}, "expected contraction_dim"),
        ({"scale_a": [ts.ones(1), ts.ones(1)]}, "one scale of mat_a for each recipe"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    eight = ts.ones(4, 32).to(ts.float8_e4m3fn)
    given = {
        "mat_a": eight, "mat_b": eight.t(), "scale_a": ts.ones(1), "scale_b": ts.ones(1),
        "scale_recipe_a": ScalingType.TensorWise, "scale_recipe_b": ScalingType.TensorWise, **change,
    }  # fmt: skip
    with pytest.raises((ValueError, RuntimeError), match=message):
        scaled_mm(**given)


def test_mistakes_are_told() -> None:
    a, one, recipe = ts.eye(16).to(ts.float8_e4m3fn), ts.ones(()), ScalingType.TensorWise
    with pytest.raises(TypeError, match="expected scales of mat_a as tensors, got \\['float'\\]"):
        scaled_mm(a, a.t(), 1.0, recipe, one, recipe)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected a result of"):
        scaled_mm(a, a.t(), one, recipe, one, recipe, bias=ts.ones(16), output_dtype=ts.int32)
    with pytest.raises(ValueError, match="expected a bias of"):
        scaled_mm(a, a.t(), one, recipe, one, recipe, bias=ts.ones(16, 1))
