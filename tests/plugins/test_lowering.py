"""Devices that lack instructions: the core writes programs with those they have."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from scipy import special
from tesserack import _native
from tesserack.ops.registry import operators
from tesserack.testing import cases, samples

native: Any = _native
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugins" / "reference"))

#: What ``abi.h`` says every device has.
BASIC = (
    *("copy", "add", "sub", "mul", "div", "fmod", "pow", "eq", "lt", "select", "floor", "sqrt", "exp", "log", "sin"),
    *("cos", "atan", "and", "or", "xor", "shl", "shr"),
)


def reference_with(name: str, instructions: Any, seen: set[str]) -> str:
    """The reference backend under another name, with these instructions alone; others raise."""
    import tesserack_reference

    class Little(tesserack_reference.Reference):
        def properties(self, device: int) -> dict[str, Any]:
            return {**super().properties(device), "instructions": instructions}

    Little.name = name
    made = Little()
    made._kernels.update(tesserack_reference.backend._kernels)

    @made.kernel("pointwise")
    def pointwise(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
        used = {step[0] for step in program.instructions}
        assert used <= {*instructions}, f"{used - {*instructions}} in {program.text}"
        seen.update(used)
        tesserack_reference.pointwise(outputs=outputs, inputs=inputs, program=program, compute_dtype=compute_dtype)

    native._register_python_backend(made, __file__)
    return name


@pytest.fixture(scope="module")
def little() -> str:
    return reference_with("little", BASIC, set())


def error_in_units(got: Any, want: Any, dtype: Any) -> float:
    """The largest error, in units in the last place of the true value."""
    want = np.asarray(want, np.float64)
    got = np.asarray(got, np.float64)
    same = (got == want.astype(dtype)) | (np.isnan(got) & np.isnan(want))
    unit = np.spacing(np.maximum(np.abs(want), np.finfo(dtype).tiny).astype(dtype)).astype(np.float64)
    return float(np.max(np.where(same, 0, np.abs(got - want) / unit)))


EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1e-30, -1e-30]
WIDE = np.concatenate([EDGES, np.linspace(-30, 30, 1201), np.geomspace(1e-8, 1e3, 200), -np.geomspace(1e-8, 80, 100)])
UNIT = np.concatenate([EDGES, np.linspace(-1, 1, 801), np.geomspace(1e-8, 1, 100), 1 - np.geomspace(1e-7, 1, 50)])
ABOVE = np.concatenate([EDGES, np.linspace(0, 40, 1001), np.geomspace(1, 1e6, 200)])

# Operator, the function in float64, arguments, and the error allowed in units of float32 and float64.
UNARY: list[tuple[str, Callable[[Any], Any], Any, float, float]] = [
    ("neg", np.negative, WIDE, 0, 0),
    ("abs", np.abs, WIDE, 0, 0),
    ("sign", lambda x: np.where(np.isnan(x), 0, np.sign(x)), WIDE, 0, 0),
    ("reciprocal", lambda x: 1 / x, WIDE, 1, 1),
    ("rsqrt", lambda x: 1 / np.sqrt(x), ABOVE, 2, 2),
    ("exp2", np.exp2, WIDE, 3, 4),
    ("expm1", np.expm1, WIDE, 4, 5),
    ("log2", np.log2, ABOVE, 4, 4),
    ("log10", np.log10, ABOVE, 4, 4),
    ("log1p", np.log1p, np.concatenate([UNIT, ABOVE]), 4, 5),
    ("tan", np.tan, np.linspace(-1.5, 1.5, 501), 4, 4),
    ("asin", np.arcsin, UNIT, 4, 4),
    ("acos", np.arccos, UNIT, 5, 5),
    ("sinh", np.sinh, WIDE, 12, 24),
    ("cosh", np.cosh, WIDE, 12, 24),
    ("tanh", np.tanh, WIDE, 6, 8),
    ("asinh", np.arcsinh, WIDE, 6, 8),
    ("acosh", np.arccosh, ABOVE, 8, 10),
    ("atanh", np.arctanh, UNIT, 8, 10),
    ("erf", special.erf, WIDE, 6, 8),
    ("erfc", np.vectorize(math.erfc, otypes=[float]), np.concatenate([EDGES, np.linspace(-6, 9, 901)]), 12, 20),
    ("erfinv", special.erfinv, UNIT, 10, 20),
    ("sigmoid", special.expit, np.concatenate([EDGES[:2], np.linspace(-30, 30, 601)]), 3, 3),
    ("ceil", np.ceil, WIDE, 0, 0),
    ("trunc", np.trunc, WIDE, 0, 0),
    ("round", np.rint, np.concatenate([WIDE, np.arange(-20, 20) / 2]), 0, 0),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", UNARY, ids=lambda case: case[0])
def test_a_lowered_instruction_is_accurate(little: str, case: Any, dtype: str) -> None:
    name, function, points, single, double = case
    x = np.asarray(points, dtype)
    with np.errstate(all="ignore"):
        want = function(x.astype(np.float64))
        # What float64's own function errs is not held against ours.
        got = getattr(ts, name)(ts.tensor(x.tolist(), dtype=getattr(ts, dtype), device=little)).cpu().numpy()
        rounded = want.astype(dtype)
    finite = np.isfinite(rounded)
    assert error_in_units(got[finite], want[finite], dtype) <= (single if dtype == "float32" else double)
    beyond = rounded[~finite]
    np.testing.assert_array_equal(got[~finite], beyond)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_gamma_functions(little: str, name: str, dtype: str) -> None:
    x = np.concatenate([np.linspace(-9.3, 30, 1013), np.geomspace(1e-6, 1e5, 300), 1 + np.geomspace(1e-7, 0.4, 50)])
    x = x.astype(dtype)
    far = np.abs(x - np.rint(x)) > 0.02  # at a pole the argument's own rounding rules
    x = x[far | (x > 0)]
    got = getattr(ts, name)(ts.tensor(x.tolist(), dtype=getattr(ts, dtype), device=little)).cpu().numpy()
    want = {"lgamma": special.gammaln, "digamma": special.psi}[name](x.astype(np.float64))
    scale = 1 if dtype == "float64" else np.finfo("float32").eps / np.finfo("float64").eps
    np.testing.assert_allclose(got, want, rtol=2e-14 * scale, atol=4e-14 * scale)
    edges = ts.tensor([0.0, -1.0, -2.0, np.inf, np.nan], dtype=getattr(ts, dtype), device=little)
    want_edges = {
        "lgamma": [np.inf, np.inf, np.inf, np.inf, np.nan],
        "digamma": [-np.inf, np.nan, np.nan, np.inf, np.nan],
    }
    np.testing.assert_array_equal(getattr(ts, name)(edges).cpu().numpy(), want_edges[name])


BINARY = {
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "remainder": np.remainder,
    "fmod": np.fmod,
    "floor_divide": np.floor_divide,
    "ne": np.not_equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@pytest.mark.parametrize("name", sorted(BINARY))
def test_a_lowered_instruction_of_two(little: str, name: str) -> None:
    points = np.array([*EDGES, 3.5, -7.25, 1e10, 0.1])
    a, b = (x.ravel() for x in np.meshgrid(points, points))
    with np.errstate(all="ignore"):
        want = BINARY[name](a, b)
        on_cpu = getattr(ts, name)(ts.tensor(a), ts.tensor(b)).numpy()
    got = getattr(ts, name)(ts.tensor(a, device=little), ts.tensor(b, device=little)).cpu().numpy()
    # Where two definitions differ (a quotient by 0), the cpu's is ours.
    np.testing.assert_allclose(got, np.where(on_cpu == want, want, on_cpu), rtol=1e-15, atol=0)
    if got.dtype == np.float64:
        zero = (want == 0) & (on_cpu == 0)
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(on_cpu[zero]))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "uint64"])
def test_integers(little: str, dtype: str) -> None:
    kind = getattr(ts, dtype)
    low = 0 if dtype.startswith("u") else -9
    a, b = (x.ravel() for x in np.meshgrid(np.arange(low, 10), np.arange(1, 8)))
    if low:
        b = b * np.where(np.arange(b.size) % 2, 1, -1)
    x, y = ts.tensor(a.tolist(), dtype=kind), ts.tensor(b.tolist(), dtype=kind)
    for name in ("floor_divide", "remainder", "fmod", "maximum", "minimum", "bitwise_xor", "ne", "ge"):
        got = getattr(ts, name)(x.to(little), y.to(little)).cpu()
        assert got.equal(getattr(ts, name)(x, y)), name
    for name in ("bitwise_not", "neg", "abs", "sign"):
        assert getattr(ts, name)(x.to(little)).cpu().equal(getattr(ts, name)(x)), name


def to_bfloat16(x: Any) -> Any:
    """By the definition, in float64: eight digits, fewer below the smallest normal number."""
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(x)
        unit = np.ldexp(1.0, np.maximum(exponent - 8, -133))
        rounded = np.where(np.isfinite(x), np.rint(x / unit) * unit, x)
        return np.where(np.abs(rounded) >= 2.0**128, np.copysign(np.inf, x), rounded)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_to_halves(little: str, half: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            EDGES,
            rng.normal(size=2000) * 10.0 ** rng.integers(-9, 6, 2000),
            [
                65504,
                65519.996,
                65520,
                65536,
                1e5,
                2.0**-24,
                2.0**-25,
                1.5 * 2**-25,
                2.0**-14,
                1 + 2**-11,
                1 + 3 * 2**-11,
            ],
            [1 + 2**-8, 1 + 3 * 2**-8, 3.3895e38, 3.4e38, 1.2e-38, 1e-39],
        ]
    ).astype(dtype)
    t = ts.tensor(x.tolist(), dtype=getattr(ts, dtype))
    round_to = operators()[f"_round_{half}"]
    got, here = round_to(t.to(little)).cpu().numpy(), round_to(t).numpy()
    if half == "float16":
        with np.errstate(all="ignore"):
            want = x.astype(np.float16).astype(dtype)
    else:
        want = to_bfloat16(x.astype(np.float64)).astype(dtype)
    np.testing.assert_array_equal(here, want)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[got == 0]))


def test_every_pointwise_operator_runs(little: str) -> None:
    """Its samples give what the cpu gives, without a fallback."""
    before = ts.backends.get_fallback()
    ts.backends.set_fallback("error")
    tried = 0
    try:
        for record in native._operators():
            if not record["pointwise"]:
                continue
            for sample in samples.samples(record["name"])[:2]:
                tried += 1
                check(record["name"], sample, little)
    finally:
        ts.backends.set_fallback(before)
    assert tried > 100, tried


def check(name: str, sample: Any, device: str) -> None:
    functional = cases.functional_name(samples.records()[name])
    dtype = ts.float64 if cases.claims(functional, sample, "float64") else ts.int64
    args, kwargs = cases.build(sample, dtype, "cpu")
    here = cases.call(name, args, kwargs)
    args, kwargs = cases.build(sample, dtype, device)
    there = cases.call(name, args, kwargs)
    for got, want in zip(cases.leaves(there), cases.leaves(here), strict=True):
        np.testing.assert_allclose(got.cpu().numpy(), want.numpy(), rtol=1e-11, atol=1e-13, err_msg=name)


def test_a_device_without_a_basic_instruction_is_refused() -> None:
    name = reference_with("lesser", [n for n in BASIC if n != "sin"], set())
    with pytest.raises(
        RuntimeError, match=r"properties: backend 'lesser' tells instructions of device 0 without number"
    ):
        ts.zeros(2, device=name)
    with pytest.raises(ValueError, match="expected names of scalar instructions, got sine"):
        ts.backends._python.instruction_words(["sine"])


@pytest.mark.parametrize("device", ["cpu", "little"])
def test_constants_have_64_bits(little: str, device: str) -> None:
    x = ts.tensor([0, 1, -(2**60), 2**62], dtype=ts.int64, device=device)
    assert (x + (2**60 + 1)).tolist() == [2**60 + 1, 2**60 + 2, 1, 2**62 + 2**60 + 1]
    assert x.clamp(max=2**60 - 1).tolist() == [0, 1, -(2**60), 2**60 - 1]
