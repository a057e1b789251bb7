"""The tile machine against NumPy and SciPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kernel_harness as h
import numpy as np
import pytest
import scipy.special as sp
from kernel_harness import Array

Unary = Callable[[Array], Array]

# instruction -> (float64 reference, largest error in ulp of float32, of float64)
FLOAT_UNARY: dict[str, tuple[Unary, float, float]] = {
    "copy": (lambda x: x, 0, 0),
    "neg": (np.negative, 0, 0),
    "abs": (np.abs, 0, 0),
    "recip": (lambda x: 1 / x, 0.5, 0.5),
    "sqrt": (np.sqrt, 0.5, 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.5, 1.5),
    "exp": (np.exp, 2, 2),
    "exp2": (np.exp2, 2, 2),
    "expm1": (np.expm1, 2, 2),
    "log": (np.log, 2, 2),
    "log2": (np.log2, 2, 2),
    "log10": (np.log10, 2, 2),
    "log1p": (np.log1p, 2, 2),
    "sin": (np.sin, 2, 2),
    "cos": (np.cos, 2, 2),
    "tan": (np.tan, 2, 2),
    "asin": (np.arcsin, 2, 2),
    "acos": (np.arccos, 2, 2),
    "atan": (np.arctan, 2, 2),
    "sinh": (np.sinh, 4, 4),
    "cosh": (np.cosh, 4, 4),
    "tanh": (np.tanh, 2.1, 3),  # 1.9 with fused multiply-add
    "asinh": (np.arcsinh, 4, 4),
    "acosh": (np.arccosh, 4, 4),
    "atanh": (np.arctanh, 4, 4),
    "erf": (sp.erf, 2, 3),
    "erfc": (sp.erfc, 6, 500),  # SciPy itself is off by 400 in the far tail
    "sigmoid": (
        lambda x: np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))),
        2,
        4,
    ),
    "floor": (np.floor, 0, 0),
    "ceil": (np.ceil, 0, 0),
    "trunc": (np.trunc, 0, 0),
    "round": (np.rint, 0, 0),
    "not": (lambda x: (x == 0).astype(x.dtype), 0, 0),
}

SPECIALS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 1e-45, -1e-45, 1e-38, 1e-30, 1e-7, 88.7, 88.8, -87.4, -103.9, -104.5,
            1e5, 1.6e6, 1e7, 1e30, -1e30, 3.4e38, np.inf, -np.inf, np.nan]  # fmt: skip


def samples(dtype: str) -> Array:
    """Every binade, uniformly in the bits, and the special values."""
    if dtype == "f4":
        bits = np.arange(0, 2**32, 40009, dtype=np.uint64).astype(np.uint32).view("f4")
    else:
        bits = np.arange(0, 2**64 - 2**47, 2**46 + 12345, dtype=np.uint64).view("f8")
    usual = np.linspace(-20, 20, 20011)
    return np.concatenate([bits, usual.astype(dtype), np.array(SPECIALS, dtype)])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("op", FLOAT_UNARY)
def test_float_unary(op: str, dtype: str) -> None:
    reference, ulp32, ulp64 = FLOAT_UNARY[op]
    x = samples(dtype)
    out = np.empty_like(x)
    h.pointwise(out, [x], [(op, 0)], dtype)
    want = reference(x.astype("f8"))
    error = h.ulp_error(out, want)
    worst = int(error.argmax())
    assert error[worst] <= (ulp32 + 0.01 if dtype == "f4" else ulp64), (op, x[worst], out[worst], want[worst])


@pytest.mark.parametrize(
    "op",
    [
        "neg",
        "abs",
        "copy",
        "sqrt",
        "sin",
        "tan",
        "asin",
        "atan",
        "sinh",
        "tanh",
        "atanh",
        "expm1",
        "log1p",
        "erf",
        "erfinv",
        "round",
    ],
)
def test_the_sign_of_zero_survives(op: str) -> None:
    out = np.empty(2, "f4")
    h.pointwise(out, [np.array([0.0, -0.0], "f4")], [(op, 0)], "f4")
    want = [True, False] if op == "neg" else [False, False] if op == "abs" else [False, True]
    assert np.signbit(out).tolist() == want


@pytest.mark.parametrize("op", ["exp", "sigmoid"])
@pytest.mark.parametrize("far", [None, 87.5, -87.5, 200.0, -100.0, np.inf, -np.inf, np.nan])
def test_results_whatever_the_neighbours(far: float | None, op: str) -> None:
    x = np.linspace(-87, 87, 100_003).astype("f4")
    if far is not None:
        x[::29] = far
    out = np.empty_like(x)
    h.pointwise(out, [x], [(op, 0)], "f4")
    reference, limit, _ = FLOAT_UNARY[op]
    assert h.ulp_error(out, reference(x.astype("f8"))).max() <= limit


@pytest.mark.parametrize("op", ["exp", "tanh", "sigmoid"])
def test_a_result_is_the_same_wherever_it_stands(op: str) -> None:
    x = np.linspace(-90, 90, 1009).astype("f4")
    whole, single, shifted = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    h.pointwise(whole, [x], [(op, 0)], "f4")
    for i in range(len(x)):
        h.pointwise(single[i : i + 1], [x[i : i + 1]], [(op, 0)], "f4")
    h.pointwise(shifted[5:], [x[5:]], [(op, 0)], "f4")
    np.testing.assert_array_equal(single, whole)
    np.testing.assert_array_equal(shifted[5:], whole[5:])


def test_results_past_the_caches(rng: np.random.Generator) -> None:
    x, y = (rng.normal(size=12_000_003).astype("f4")[1:] for _ in range(2))  # streamed, from an odd address
    out = np.empty_like(x)
    h.pointwise(out, [x, y], [("add", 0, 1)], "f4")
    np.testing.assert_array_equal(out, x + y)
    h.pointwise(out, [x, y], [("mul", 0, 1), ("add", 2, 0)], "f4")
    np.testing.assert_array_equal(out, x * y + x)


def test_instructions_known_as_one(rng: np.random.Generator) -> None:
    """silu, hardsigmoid and hardswish, of so many elements that the memory is asked ahead, and of few."""
    x = np.concatenate([rng.normal(size=300_001).astype("f4") * 4, np.array(SPECIALS, "f4")])
    wide = x.astype("f8")
    clipped = [("add", 0, 1), ("max", 4, 2), ("min", 5, 3)]
    with np.errstate(all="ignore"):
        sixth = np.clip(x + np.float32(3), 0, 6)
        cases = (
            ([("sigmoid", 0), ("mul", 0, 1)], (), wide * sp.expit(wide), 3),
            ([*clipped, ("div", 6, 3)], (3, 0, 6), sixth / np.float32(6), 0),
            ([*clipped, ("mul", 0, 6), ("div", 7, 3)], (3, 0, 6), x * sixth / np.float32(6), 0),
        )
    for steps, constants, want, limit in cases:
        for part in (slice(None), slice(-40, None)):
            out = np.empty_like(x[part])
            h.pointwise(out, [x[part]], steps, "f4", constants)
            usual = ~(np.abs(x[part]) < 1e-37) & ~(x[part] < -87)  # subnormal results have fewer bits
            assert h.ulp_error(out, want[part].astype("f8"))[usual].max() <= limit, steps


def test_special_functions(rng: np.random.Generator) -> None:
    x = np.concatenate([rng.uniform(-0.99999, 0.99999, 3000), [1.0, -1.0, 0.0, 1 - 1e-12, 1e-300]])
    out = np.empty_like(x)
    h.pointwise(out, [x], [("erfinv", 0)], "f8")
    np.testing.assert_allclose(out, sp.erfinv(x), rtol=1e-12)
    y = np.concatenate([rng.uniform(-20, 60, 3000), [0.0, 1.0, 2.0, 1e10, 1e-5]])
    out = np.empty_like(y)
    h.pointwise(out, [y], [("digamma", 0)], "f8")
    np.testing.assert_allclose(out, np.where(y == 0, -np.inf, sp.digamma(y)), rtol=1e-11, atol=1e-11)
    h.pointwise(out, [y], [("lgamma", 0)], "f8")
    np.testing.assert_allclose(out, sp.gammaln(y), rtol=1e-12, atol=1e-12)


FLOAT_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "mod": np.mod,
    "fmod": np.fmod,
    "floordiv": np.floor_divide,
    "max": np.maximum,
    "min": np.minimum,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "eq": lambda a, b: (a == b).astype(a.dtype),
    "ne": lambda a, b: (a != b).astype(a.dtype),
    "lt": lambda a, b: (a < b).astype(a.dtype),
    "le": lambda a, b: (a <= b).astype(a.dtype),
    "gt": lambda a, b: (a > b).astype(a.dtype),
    "ge": lambda a, b: (a >= b).astype(a.dtype),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("op", FLOAT_BINARY)
def test_float_binary(op: str, dtype: str, rng: np.random.Generator) -> None:
    a = np.concatenate([rng.normal(size=3001) * 10, np.repeat([0.0, -0.0, 1.5, np.inf, -np.inf, np.nan], 6)]).astype(
        dtype
    )
    b = np.concatenate([rng.normal(size=3001) * 3, np.tile([0.0, -0.0, 1.5, np.inf, -np.inf, np.nan], 6)]).astype(dtype)
    out = np.empty_like(a)
    h.pointwise(out, [a, b], [(op, 0, 1)], dtype)
    want = FLOAT_BINARY[op](a, b)
    if (
        op == "floordiv"
    ):  # a finite value over an infinity of the other sign is -1 in Python and -1 here; inf // x is NaN
        keep = np.isfinite(a)
        out, want = out[keep], want[keep]
    np.testing.assert_allclose(out, want, rtol=3e-7 if dtype == "f4" else 1e-15)


@pytest.mark.parametrize("op", ["mod", "fmod", "floordiv"])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e5, 1e9, 1e38])
def test_remainders_of_near_multiples(op: str, scale: float, rng: np.random.Generator) -> None:
    """Quotients within a rounding of an integer, of both signs; from 1e9 on beyond what float64 holds exactly."""
    b = (rng.normal(size=5000) * 3).astype("f4")
    a = (np.rint(rng.normal(size=5000) * scale) * b).astype("f4")
    a[::3] = np.nextafter(a[::3], np.float32(0))
    out = np.empty_like(a)
    h.pointwise(out, [a, b], [(op, 0, 1)], "f4")
    np.testing.assert_array_equal(out, FLOAT_BINARY[op](a, b))
    h.pointwise(out, [a, np.broadcast_to(b[0], a.shape)], [(op, 0, 1)], "f4")
    np.testing.assert_array_equal(out, FLOAT_BINARY[op](a, b[0]))


@pytest.mark.parametrize("op", ["atan2", "hypot", "fmod", "mod"])
def test_pairs_of_special_values(op: str) -> None:
    values = np.array([v for v in SPECIALS if not (op == "hypot" and abs(v) > 2e38)], "f4")
    a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(values, values))
    out = np.empty_like(a)
    h.pointwise(out, [a, b], [(op, 0, 1)], "f4")
    with np.errstate(all="ignore"):
        want = FLOAT_BINARY[op](a.astype("f8"), b.astype("f8")).astype("f4") if op != "mod" else np.mod(a, b)
    np.testing.assert_allclose(out, want, rtol=1.3e-7)
    known = ~np.isnan(want) & ((want != 0) | (op != "mod"))  # NumPy's zero has the sign of b, PyTorch's that of a
    assert (np.signbit(out) == np.signbit(want))[known].all()


def test_pow_follows_ieee(rng: np.random.Generator) -> None:
    edge = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 3.0, -3.0, 2.5, np.inf, -np.inf, np.nan, 1e-40, 3e38], "f4")
    a = np.concatenate([np.abs(rng.normal(size=5000)) * 10, np.repeat(edge, len(edge))]).astype("f4")
    b = np.concatenate([rng.normal(size=5000) * 8, np.tile(edge, len(edge))]).astype("f4")
    out = np.empty_like(a)
    h.pointwise(out, [a, b], [("pow", 0, 1)], "f4")
    want = np.power(a.astype("f8"), b.astype("f8"))
    error = h.ulp_error(out, want)
    assert error.max() <= 2, (a[error.argmax()], b[error.argmax()], out[error.argmax()])
    assert np.array_equal(np.signbit(out[~np.isnan(out)]), np.signbit(want[~np.isnan(out)]))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("size", [5, 4096, 5001])
def test_replacing_nan_and_infinities(size: int, dtype: str, rng: np.random.Generator) -> None:
    """What the machine does in one loop, and the same in small programs."""
    x = rng.normal(size=size).astype(dtype)
    x[::5], x[1::5], x[2::5] = np.nan, np.inf, -np.inf
    out, limit = np.empty_like(x), float(np.finfo(dtype).max)
    within = [("ne", 0, 0), ("neg", 2), ("max", 0, 4), ("min", 5, 2), ("select", 3, 1, 6)]
    h.pointwise(out, [x, (7.0, "f8", 1), (limit, "f8", 1)], within, dtype)
    np.testing.assert_array_equal(out, np.nan_to_num(x, nan=7.0))
    steps = [("ne", 0, 0), ("eq", 0, 4), ("eq", 0, 5), ("select", 8, 3, 0), ("select", 7, 2, 9), ("select", 6, 1, 10)]
    numbers = [(v, "f8", 1) for v in (7.0, 8.0, 9.0)]
    h.pointwise(out, [x, *numbers], steps, dtype, constants=[np.inf, -np.inf])
    np.testing.assert_array_equal(out, np.nan_to_num(x, nan=7.0, posinf=8.0, neginf=9.0))
    h.pointwise(out, [x, *numbers], steps, dtype, constants=[1.0, -1.0])  # the same tree of other constants
    np.testing.assert_array_equal(out, np.where(np.isnan(x), dtype_of(7.0, dtype), x))


def dtype_of(value: float, dtype: str) -> Any:
    return np.dtype(dtype).type(value)


@pytest.mark.parametrize("cols", [63, 65, 383, 511, 1025])
def test_rows_apart_are_read_as_they_lie(cols: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=(37, cols + 1)).astype("f4")
    left, right = x[:, :-1], x[:, 1:]
    out = np.empty((37, cols), "f4")
    h.pointwise(out, [right, left], [("sub", 0, 1)], "f4")
    np.testing.assert_array_equal(out, right - left)
    h.pointwise(out, [right, left], [("sub", 0, 1), ("exp", 2), ("mul", 3, 0)], "f4")
    np.testing.assert_allclose(out, np.exp(right - left) * right, rtol=1e-6)
    wide = np.zeros((37, cols + 3), "f4")
    h.pointwise(wide[:, 2:-1], [right, left], [("sub", 0, 1)], "f4")
    np.testing.assert_array_equal(wide[:, 2:-1], right - left)
    assert not wide[:, :2].any() and not wide[:, -1:].any()
    h.pointwise(x[:, 1:], [x[:, 1:], left.copy()], [("sub", 0, 1)], "f4")  # in place


INT_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "fmod": np.fmod,
    "eq": lambda a, b: (a == b).astype(a.dtype),
    "lt": lambda a, b: (a < b).astype(a.dtype),
}


@pytest.mark.parametrize("dtype", ["i4", "i8", "u8"])
@pytest.mark.parametrize("op", INT_BINARY)
def test_integer_binary_wraps(op: str, dtype: str, rng: np.random.Generator) -> None:
    info = np.iinfo(dtype)
    a = np.concatenate(
        [rng.integers(info.min, info.max, 2000, dtype, endpoint=True), np.array([info.min, info.max, 7], dtype)]
    )
    b = np.concatenate([rng.integers(1, 1000, 2000).astype(dtype), np.array([3, 5, 2], dtype)])
    if info.min < 0:
        b[::3] *= np.array(-1, dtype)
    out = np.empty_like(a)
    h.pointwise(out, [a, b], [(op, 0, 1)], dtype)
    np.testing.assert_array_equal(out, INT_BINARY[op](a, b))


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_lowest_over_minus_one_wraps(dtype: str) -> None:
    low = np.iinfo(dtype).min
    a, b = np.full(9, low, dtype), np.full(9, -1, dtype)
    out = np.empty_like(a)
    for op, want in (("div", low), ("floordiv", low), ("mod", 0), ("fmod", 0)):
        h.pointwise(out, [a, b], [(op, 0, 1)], dtype)
        assert (out == want).all(), op


@pytest.mark.parametrize("op", ["div", "floordiv", "mod", "fmod"])
@pytest.mark.parametrize("dtype", ["i4", "i8", "u8"])
@pytest.mark.parametrize("size", [3, 100_000])
def test_integer_division_by_zero_is_an_error(op: str, dtype: str, size: int) -> None:
    a, b = np.ones(size, dtype), np.ones(size, dtype)
    b[-1] = 0
    with pytest.raises(h.KernelError, match="ZeroDivisionError: integer division or modulo by zero"):
        h.pointwise(np.empty_like(a), [a, b], [(op, 0, 1)], dtype)
    with pytest.raises(h.KernelError, match="ZeroDivisionError"):
        h.pointwise(np.empty_like(a), [a, (0, dtype, 1)], [(op, 0, 1)], dtype)


@pytest.mark.parametrize("dtype", ["i4", "i8", "u8"])
def test_shifts_are_defined_for_every_count(dtype: str) -> None:
    width = 8 * np.dtype(dtype).itemsize
    counts = [0, 1, 5, width - 1, width, width + 1, 200, *([-1, -width] if dtype != "u8" else [])]
    for value in (13, -13 if dtype != "u8" else 2**63 + 5):
        a, b = np.full(len(counts), value, dtype), np.array(counts, dtype)
        left, right = np.empty_like(a), np.empty_like(a)
        h.pointwise(left, [a, b], [("shl", 0, 1)], dtype)
        h.pointwise(right, [a, b], [("shr", 0, 1)], dtype)
        for got_left, got_right, n in zip(left.tolist(), right.tolist(), counts, strict=True):
            inside = 0 <= n < width
            want = np.array([(value << n) % (1 << width)], "u8").astype(dtype)[0] if inside else 0
            assert got_left == want
            assert got_right == (value >> n if inside else (-1 if value < 0 else 0))


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_integer_pow(dtype: str) -> None:
    a = np.array([2, 3, -2, 0, 0, 1, -1, -1, 5, 7], dtype)
    b = np.array([10, 0, 3, 0, -1, -5, -3, -4, -2, 40], dtype)
    out = np.empty_like(a)
    h.pointwise(out, [a, b], [("pow", 0, 1)], dtype)
    bits = 8 * np.dtype(dtype).itemsize
    last = (7**40 + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    assert out.tolist() == [1024, 1, -8, 1, 0, 1, -1, 1, 0, last]


def test_float_only_instructions_are_refused_for_integers() -> None:
    a = np.ones(4, "i4")
    with pytest.raises(h.KernelError, match="exp is not defined for int32"):
        h.pointwise(np.empty_like(a), [a], [("exp", 0)], "i4")
    with pytest.raises(h.KernelError, match="and is not defined for float32"):
        h.pointwise(np.empty(4, "f4"), [a, a], [("and", 0, 1)], "f4")
    with pytest.raises(h.KernelError, match="unknown instruction 66"):
        h.pointwise(np.empty(4, "f4"), [a], [(66, 0)], "f4")


def layouts(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, Array]:
    """The same kind of values under many strides."""
    rows, cols = shape
    base = rng.normal(size=(rows * 2, cols * 3))
    return {
        "contiguous": rng.normal(size=shape),
        "transposed": rng.normal(size=(cols, rows)).T,
        "sliced": base[::2, ::3],
        "flipped": rng.normal(size=shape)[::-1, ::-1],
        "row": np.broadcast_to(rng.normal(size=cols), shape),
        "column": np.broadcast_to(rng.normal(size=(rows, 1)), shape),
        "one value": np.broadcast_to(rng.normal(size=()), shape),
    }


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (67, 1), (33, 7), (65, 129), (300, 2000), (40, 3000)])
def test_every_pair_of_layouts(shape: tuple[int, int], rng: np.random.Generator) -> None:
    variants = layouts(rng, shape)
    for a_name, a in variants.items():
        for b_name, b in variants.items():
            a32, b64 = a.astype("f4") if a_name == "contiguous" else a, b
            out = np.full(shape, np.nan)
            h.pointwise(out, [a32, b64], [("sub", 0, 1)], "f8")
            np.testing.assert_array_equal(out, a32.astype("f8") - b64, err_msg=f"{a_name} - {b_name}")


@pytest.mark.parametrize("shape", [(3, 5), (65, 129), (300, 2000)])
def test_strided_outputs(shape: tuple[int, int], rng: np.random.Generator) -> None:
    a, b = rng.normal(size=shape), rng.normal(size=shape[::-1]).T
    wide = np.full((shape[0] * 2, shape[1] * 3), 7.0)
    for out in (np.empty(shape[::-1]).T, wide[::2, ::3], np.empty(shape)[::-1, ::-1], np.empty(shape, "f4")):
        h.pointwise(out, [a, b], [("add", 0, 1)], "f8")
        np.testing.assert_array_equal(out, (a + b).astype(out.dtype))
    mask = np.ones_like(wide, bool)
    mask[::2, ::3] = False
    assert (wide[mask] == 7.0).all()


def test_many_dimensions(rng: np.random.Generator) -> None:
    a = rng.normal(size=(2, 3, 4, 5, 2, 3)).transpose(5, 0, 3, 1, 4, 2)
    b = rng.normal(size=(3, 1, 5, 1, 2, 1))
    out = np.empty(a.shape)
    h.pointwise(out, [a, np.broadcast_to(b, a.shape)], [("mul", 0, 1)], "f8")
    np.testing.assert_array_equal(out, a * b)


@pytest.mark.parametrize("size", [1, 5, 1024, 5000, 200_001])
def test_scalars_and_constants(size: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=size).astype("f4")
    out = np.empty_like(x)
    h.pointwise(out, [x], [("sub", 1, 0)], "f4", constants=[3.0])
    np.testing.assert_array_equal(out, np.float32(3) - x)
    h.pointwise(out, [x, (2.5, "f4", 1)], [("mul", 0, 1)], "f4")
    np.testing.assert_array_equal(out, x * np.float32(2.5))
    h.pointwise(out, [(2.5, "f4", 1), (4, "i8", 1)], [("mul", 0, 1)], "f4")
    assert (out == 10.0).all()
    h.pointwise(out, [x], [], "f4")
    np.testing.assert_array_equal(out, x)


def test_a_scalar_is_rounded_through_its_own_dtype() -> None:
    out = np.empty(3)
    h.pointwise(out, [np.zeros(3), (0.1, "f4", 1)], [("add", 0, 1)], "f8")
    assert (out == np.float64(np.float32(0.1))).all()


@pytest.mark.parametrize("size", [1, 17, 1024, 3000, 150_000])
def test_fused_chain(size: int, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=size), rng.normal(size=size)
    out = np.empty(size)
    steps = [("mul", 0, 1), ("tanh", 3), ("gt", 0, 2), ("select", 5, 4, 1), ("fma", 6, 6, 0), ("sub", 7, 3)]
    h.pointwise(out, [x, y], steps, "f8", constants=[0.0])
    product = x * y
    chosen = np.where(x > 0, np.tanh(product), y)
    np.testing.assert_allclose(out, chosen * chosen + x - product, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mask", range(8))
def test_ternary_with_every_mix_of_scalars(mask: int, rng: np.random.Generator) -> None:
    values = [rng.normal(size=1500) for _ in range(3)]
    operands: list[Any] = [(1.5 + k, "f8", 1) if mask >> k & 1 else v for k, v in enumerate(values)]
    plain = [1.5 + k if mask >> k & 1 else v for k, v in enumerate(values)]
    out = np.empty(1500)
    h.pointwise(out, operands, [("fma", 0, 1, 2)], "f8")
    np.testing.assert_allclose(out, np.broadcast_to(plain[0] * plain[1] + plain[2], 1500), rtol=1e-15, atol=1e-15)
    h.pointwise(out, operands, [("select", 0, 1, 2)], "f8")
    np.testing.assert_array_equal(out, np.broadcast_to(np.where(plain[0] != 0, plain[1], plain[2]), 1500))


@pytest.mark.parametrize("size", [8, 5000, 100_000])
def test_in_place(size: int, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=size).astype("f4"), rng.normal(size=size).astype("f4")
    for steps in (
        [("add", 0, 1)],
        [("tanh", 0)],
        [("mul", 0, 1), ("sub", 2, 0)],
        [("mul", 0, 0), ("add", 2, 1), ("add", 3, 0)],
    ):
        fresh, own = np.empty_like(x), x.copy()
        h.pointwise(fresh, [x, y], steps, "f4")
        h.pointwise(own, [own, y], steps, "f4")
        np.testing.assert_array_equal(own, fresh)


def test_in_place_with_several_outputs(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=4000), rng.normal(size=4000)
    a, b, c = x.copy(), y.copy(), np.empty(4000)
    # out0 lies on in0, which the second instruction and the third output still read
    program = h.make_program(2, [("add", 0, 1), ("mul", 0, 1)], outputs=[2, 3, 0])
    h.call("pointwise", [a, b, c], [a, b], compute="f8", program=program)
    np.testing.assert_array_equal(a, x + y)
    np.testing.assert_array_equal(b, x * y)
    np.testing.assert_array_equal(c, x)


def test_the_same_register_may_feed_two_outputs(rng: np.random.Generator) -> None:
    x = rng.normal(size=(50, 60))
    a, b = np.empty((50, 60)), np.empty((60, 50), "f4").T
    h.call("pointwise", [a, b], [x], compute="f8", program=h.make_program(1, [("neg", 0)], outputs=[1, 1]))
    np.testing.assert_array_equal(a, -x)
    np.testing.assert_array_equal(b, (-x).astype("f4"))


@pytest.mark.parametrize("out", h.DTYPES[:13], ids=str)
@pytest.mark.parametrize("source", h.DTYPES[:13], ids=str)
def test_mixed_dtypes(source: np.dtype[Any], out: np.dtype[Any], rng: np.random.Generator) -> None:
    x = rng.integers(0, 60, 1500).astype(source)
    y = np.empty(1500, out)
    h.pointwise(y, [x], [("add", 0, 1)], "f4", constants=[2.0])
    np.testing.assert_array_equal(y, (x.astype("f4") + 2).astype(out))


def test_forty_inputs_and_a_long_program(rng: np.random.Generator) -> None:
    xs = [rng.normal(size=(30, 70)).T if k % 2 else rng.normal(size=(70, 30)) for k in range(40)]
    steps: list[tuple[Any, ...]] = [("add", 0, 1)] + [("add", 40 + k, k + 2) for k in range(38)]
    out = np.empty((70, 30))
    h.pointwise(out, xs, steps, "f8")
    np.testing.assert_allclose(out, sum(xs), rtol=1e-12)


@pytest.mark.parametrize("size", [1, 7, 1023, 1024, 1025])
def test_small_programs_compute_what_tiles_do(size: int, rng: np.random.Generator) -> None:
    """Few elements take a way of their own: in place, of numbers alone, with what only tiles can do."""
    x, y = rng.normal(size=size).astype("f4"), rng.normal(size=size).astype("f4")
    out = np.empty_like(x)
    h.pointwise(out, [x, y, (2, "i8", 1)], [("mul", 1, 2), ("add", 0, 3)], "f4")
    np.testing.assert_array_equal(out, x + y * np.float32(2))
    h.pointwise(out, [x, y], [("mul", 2, 3), ("mul", 0, 4), ("sub", 5, 1)], "f4", constants=[3.0, 0.5])
    np.testing.assert_array_equal(out, x * np.float32(1.5) - y)
    h.pointwise(out, [x, y], [("mul", 2, 2), ("add", 3, 2)], "f4", constants=[3.0])  # one value for all
    assert (out == 12).all()
    target = x.copy()
    h.pointwise(target, [target, y], [("mul", 1, 1), ("sub", 2, 0), ("add", 3, 0)], "f4")  # read again after a step
    np.testing.assert_array_equal(target, (y * y - x) + x)
    n = rng.integers(1, 9, size)
    integers = np.empty_like(n)
    h.pointwise(integers, [n, n], [("mul", 0, 1), ("floordiv", 2, 0)], "i8")
    np.testing.assert_array_equal(integers, n)
    n[-1] = 0
    with pytest.raises(Exception, match="division"):
        h.pointwise(integers, [n, n], [("mul", 0, 1), ("floordiv", 2, 0)], "i8")


@pytest.mark.parametrize("dtype", [np.dtype("f2"), h.BFLOAT16], ids=str)
@pytest.mark.parametrize("n", [1, 31, 70000])
def test_signs_of_halves(n: int, dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    """Of zeros, infinities and numbers; in place, with gaps, into another dtype."""
    x = rng.normal(size=2 * n).astype(dtype)
    x[: min(n, 6)] = np.array([0.0, -0.0, np.inf, -np.inf, 1e-7, -1e-7], dtype)[: min(n, 6)]
    y = -x[::-1].copy()
    for a, b in ((x[:n], y[:n]), (x[::2], y[::2])):
        for op, want in (("neg", -a), ("abs", np.abs(a)), ("copysign", np.copysign(a.astype("f4"), b.astype("f4")))):
            out, wide, place = np.ones(n, dtype), np.ones(n, "f4"), a.copy()
            steps = [(op, 0, 1)] if op == "copysign" else [(op, 0)]
            for into, first in ((out, a), (wide, a), (place, place)):
                h.pointwise(into, [first, b] if op == "copysign" else [first], steps, "f4")
                np.testing.assert_array_equal(into, want.astype(into.dtype))
                np.testing.assert_array_equal(np.signbit(into), np.signbit(want))
