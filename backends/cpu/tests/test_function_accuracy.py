"""How many units functions are off, against wider types: from end to end of the range, near zeros and joints."""

from __future__ import annotations

import kernel_harness as h
import numpy as np
import pytest
from kernel_harness import Array


def test_pow_in_float64_to_the_last_digit(rng: np.random.Generator) -> None:
    """Against the wider type of the C library, from one end of the range to the other, and every pair of edges."""
    x = np.exp(rng.uniform(-700, 700, 20000))
    y = rng.uniform(-745, 709, 20000) / np.log(x)
    near = 1 + rng.normal(size=4000) * 2.0 ** -rng.integers(1, 52, 4000)
    far = rng.normal(size=4000) * 2.0 ** rng.integers(0, 60, 4000)
    edge = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 3.0, -3.0, 2.5, 2.0**53 + 2, 1e300, -1e300, 5e-324, -5e-324])
    edge = np.concatenate([edge, [1e-310, 1.7e308, np.inf, -np.inf, np.nan]])
    a = np.concatenate([x, near, np.repeat(edge, len(edge))])
    b = np.concatenate([y, far, np.tile(edge, len(edge))])
    out = np.empty_like(a)
    h.pointwise(out, [a, b], [("pow", 0, 1)], "f8")
    with np.errstate(all="ignore"):
        error = h.ulp_error(out, np.power(a.astype(np.longdouble), b.astype(np.longdouble)))
        want = np.power(a, b)
    assert error.max() <= 1, (a[error.argmax()], b[error.argmax()], out[error.argmax()])
    number = ~np.isnan(want)
    assert np.array_equal(np.signbit(out[number]), np.signbit(want[number]))


HYPERBOLIC = {"sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("op", HYPERBOLIC)
def test_hyperbolic_functions_and_their_inverses(op: str, dtype: str, rng: np.random.Generator) -> None:
    """Against the wider type of the C library: near 0 and 1, to the ends of the range, and where nothing is."""
    wide = 709.0 if dtype == "f8" else 88.0
    x = [rng.normal(size=8000) * 10.0 ** rng.integers(-12, 3, 8000), rng.uniform(-wide, wide, 4000)]
    x += [
        1 + 10.0 ** rng.uniform(-15, 3, 4000),
        1 - 10.0 ** rng.uniform(-15, 0, 2000),
        10.0 ** rng.uniform(-37, 37, 2000),
    ]
    x += [[0.0, -0.0, 1.0, -1.0, 2.0, -2.0, np.inf, -np.inf, np.nan, np.finfo(dtype).max, np.finfo(dtype).tiny]]
    a = np.concatenate(x).astype(dtype)
    out = np.empty_like(a)
    h.pointwise(out, [a], [(op, 0)], dtype)
    with np.errstate(all="ignore"):
        want = HYPERBOLIC[op](a.astype(np.longdouble))
        finite = np.isfinite(want.astype(dtype))
        assert np.array_equal(np.isfinite(out), finite) and np.array_equal(np.isnan(out), np.isnan(want))
    error = h.ulp_error(out[finite], want[finite])
    assert error.max() <= (1 if dtype == "f4" else 3), (a[finite][error.argmax()], error.max())
    assert np.array_equal(np.signbit(out[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))


@pytest.mark.parametrize("op", ["asin", "acos"])
def test_arcs_in_float64(op: str, rng: np.random.Generator) -> None:
    """Near 0, 1/2 and both ends, against the wider type of the C library."""
    near = 10.0 ** rng.uniform(-16, 0, 6000)
    x = [
        rng.uniform(-1, 1, 20000),
        1 - near,
        near - 1,
        0.5 - near / 2,
        0.5 + near / 2,
        10.0 ** rng.uniform(-300, 0, 3000),
    ]
    a = np.concatenate([*x, [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 5e-324, np.nextafter(1, 0)]])
    out = np.empty_like(a)
    h.pointwise(out, [a], [(op, 0)], "f8")
    want = {"asin": np.arcsin, "acos": np.arccos}[op](a.astype(np.longdouble))
    error = h.ulp_error(out, want)
    assert error.max() <= 1, (a[error.argmax()], out[error.argmax()])
    assert np.array_equal(np.signbit(out), np.signbit(want))
    edges, out = np.array([1.5, -2.0, np.inf, -np.inf, np.nan]), np.empty(5)
    h.pointwise(out, [edges], [(op, 0)], "f8")
    assert np.isnan(out).all()


@pytest.mark.parametrize("op", ["sin", "cos", "tan", "asin", "acos"])
def test_angles_and_arcs_in_float32(op: str, rng: np.random.Generator) -> None:
    """Next to zeros, poles and joints, beyond what is reduced in float32 alone, and in tiles of their own."""
    if op in ("asin", "acos"):
        near = 10.0 ** rng.uniform(-8, 0, 6000)
        x = [rng.uniform(-1, 1, 40000), 1 - near, near - 1, 0.5 - near / 2, near / 2 - 0.5, near * 1e-30]
    else:
        turns = np.arange(-2600, 2601) * (np.pi / 2)
        x = [rng.uniform(-8, 8, 40000), rng.uniform(-4095, 4095, 40000), turns, turns * (1 + 1e-7), turns * 1e-30]
    wide = {"asin": np.arcsin, "acos": np.arccos}.get(op) or getattr(np, op)
    far = rng.uniform(-1, 1, 3000) * (1e5 if op in ("sin", "cos", "tan") else 1)
    for part in (np.concatenate([*x, [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-45]]), far):
        a = part.astype("f4")
        out = np.empty_like(a)
        h.pointwise(out, [a], [(op, 0)], "f4")
        want = wide(a.astype(np.longdouble))
        error = h.ulp_error(out, want)
        assert error.max() <= 1.3, (a[error.argmax()], out[error.argmax()], error.max())
        assert np.array_equal(np.signbit(out), np.signbit(want))
    edges, out = np.array([1.5, -2.0, 1e38, np.inf, -np.inf, np.nan], "f4"), np.empty(6, "f4")
    h.pointwise(out, [edges], [(op, 0)], "f4")
    nan = np.isnan(wide(edges))
    assert np.array_equal(np.isnan(out), nan)


def test_atan_in_float64(rng: np.random.Generator) -> None:
    """Over all magnitudes, and next to where one of its angles follows another."""
    seams = np.array([7, 8, 11, 16, 19, 24, 39]) / 16
    near = np.concatenate([seam * (1 + np.arange(-300, 301) * 2.0**-52) for seam in seams])
    a = np.concatenate([rng.uniform(-4, 4, 40000), 10.0 ** rng.uniform(-300, 300, 5000), near, -near])
    a = np.concatenate([a, [0.0, -0.0, np.inf, -np.inf, 5e-324, 1e308, -1e308]])
    out = np.empty_like(a)
    h.pointwise(out, [a], [("atan", 0)], "f8")
    want = np.arctan(a.astype(np.longdouble))
    error = h.ulp_error(out, want)
    assert error.max() <= 1, (a[error.argmax()], out[error.argmax()])
    assert np.array_equal(np.signbit(out), np.signbit(want))
    nan = np.empty(1)
    h.pointwise(nan, [np.array([np.nan])], [("atan", 0)], "f8")
    assert np.isnan(nan).all()


def around(centres: Array, dtype: str, width: int = 40) -> Array:
    """The numbers next to each of some."""
    bits = "i4" if dtype == "f4" else "i8"
    return (centres.astype(dtype).view(bits)[:, None] + np.arange(-width, width, dtype=bits)).ravel().view(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_roots_are_rounded_as_the_processor_rounds_them(dtype: str, rng: np.random.Generator) -> None:
    """Over the whole range, next to squares and to powers of two, and what is no root."""
    info = np.finfo(dtype)
    whole = np.floor(rng.uniform(1, 2 ** (info.nmant // 2), 20000))
    powers = around(np.ldexp(1.0, np.arange(info.minexp - 8, info.maxexp)), dtype)
    a = np.concatenate([2.0 ** rng.uniform(info.minexp - 20, info.maxexp, 60000), rng.uniform(0, 4, 60000)])
    a = np.concatenate([a.astype(dtype), around(whole**2, dtype, 2), around((whole + 0.5) ** 2, dtype, 2), powers])
    edges = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -info.tiny, info.max], dtype)
    for part in (a, edges, a[:5], np.where(rng.random(len(a)) < 0.1, np.zeros(1, dtype), a)):
        out = np.empty_like(part)
        h.pointwise(out, [part], [("sqrt", 0)], dtype)
        with np.errstate(all="ignore"):
            want = np.sqrt(part)
        assert np.array_equal(out, want, equal_nan=True) and np.array_equal(np.signbit(out), np.signbit(want))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("op", ["exp", "log"])
def test_exponentials_and_logarithms(op: str, dtype: str, rng: np.random.Generator) -> None:
    """To a unit, where results are denormal too, next to 1, to every power of two and to what overflows."""
    info = np.finfo(dtype)
    top = float(np.log(info.max))
    if op == "exp":
        a = [
            rng.uniform(-top - 40, top, 40000),
            rng.normal(size=20000),
            rng.normal(size=9000) * 10.0 ** -rng.integers(0, 18, 9000),
        ]
        a += [around(np.array([top, float(np.log(info.smallest_subnormal)), float(np.log(info.tiny))]), dtype)]
    else:
        near = 1 + rng.normal(size=20000) * 10.0 ** -rng.integers(0, 16, 20000)
        a = [np.abs(near), rng.uniform(0.5, 3, 40000), 2.0 ** rng.uniform(info.minexp - 20, info.maxexp, 20000)]
        a += [around(np.ldexp(1.0, np.arange(info.minexp - 8, info.maxexp)), dtype, 8)]
    x = np.concatenate([np.concatenate(a).astype(dtype), np.array([*EDGES, 1e30, 1e-45], dtype)])
    out = np.empty_like(x)
    h.pointwise(out, [x], [(op, 0)], dtype)
    with np.errstate(all="ignore"):
        want = getattr(np, op)(x.astype(np.longdouble))
        rounded = want.astype(dtype)
    finite = np.isfinite(rounded)
    assert np.array_equal(out[~finite], rounded[~finite], equal_nan=True)
    error = h.ulp_error(out[finite], want[finite])
    # In float32 exp is computed from end to end; the others have tables in two parts.
    limit = 1.6 if (op, dtype) == ("exp", "f4") else 1
    assert error.max() <= limit, (x[finite][error.argmax()], out[finite][error.argmax()], error.max())
    small = np.empty(5, dtype)  # a number does not depend on how many stand beside it
    h.pointwise(small, [x[:5]], [(op, 0)], dtype)
    assert np.array_equal(small, out[:5])


def test_erf_in_float64(rng: np.random.Generator) -> None:
    """Next to 0, to the middle of its intervals and to 1, against 40 digits."""
    mpmath = pytest.importorskip("mpmath")
    x = np.concatenate([rng.uniform(-6.2, 6.2, 700), np.arange(1, 17) * 0.375, np.arange(1, 16) * 0.375 - 1e-15])
    x = np.concatenate(
        [x, rng.normal(size=200) * 10.0 ** rng.integers(-300, 0, 200), [0.0, -0.0, 5e-324, 1e300, -1e300]]
    )
    out = np.empty_like(x)
    h.pointwise(out, [x], [("erf", 0)], "f8")
    with mpmath.workdps(40):
        for value, got in zip(x.tolist(), out.tolist(), strict=True):
            want = mpmath.erf(mpmath.mpf(value))
            assert abs(got - want) <= 1.3 * np.spacing(abs(float(want))), (value, got)
    assert np.array_equal(np.signbit(out), np.signbit(x))
    edges, out = np.array([np.inf, -np.inf, np.nan]), np.empty(3)
    h.pointwise(out, [edges], [("erf", 0)], "f8")
    np.testing.assert_array_equal(out, [1.0, -1.0, np.nan])


def test_erfinv_in_float32(rng: np.random.Generator) -> None:
    """Where the logarithm is small, next to 1, at the joint of both polynomials, and many of the far ones at once."""
    special = pytest.importorskip("scipy.special")
    joint = np.sqrt(1 - np.exp(-5.0)) + np.arange(-300, 300) * 2.0**-24
    near = 1 - 2.0 ** -rng.uniform(1, 24, 3000)
    for a in (rng.uniform(-1, 1, 30000), near, joint, 10.0 ** rng.uniform(-44, -1, 3000), -near[:5]):
        x = a.astype("f4")
        out = np.empty_like(x)
        h.pointwise(out, [x], [("erfinv", 0)], "f4")
        error = h.ulp_error(out, special.erfinv(x.astype("f8")))
        assert error.max() <= 0.6, (x[error.argmax()], out[error.argmax()], error.max())
    edges, out = np.array([0.0, -0.0, 1.0, -1.0, 1.5, -3.0, np.inf, np.nan], "f4"), np.empty(8, "f4")
    h.pointwise(out, [edges], [("erfinv", 0)], "f4")
    np.testing.assert_array_equal(out, np.array([0.0, -0.0, np.inf, -np.inf, np.nan, np.nan, np.nan, np.nan], "f4"))
    assert np.signbit(out[1])


EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -7.5, 5e-324, -1e-310, 1e308, -1.7e308, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("op", ["log2", "log10", "tan"])
def test_logarithms_and_tangents_in_float64(op: str, rng: np.random.Generator) -> None:
    """Over all magnitudes, next to 1, at powers of the base, next to zeros and poles."""
    turns = np.arange(-3000, 3001) * (np.pi / 2)
    x = {
        "tan": [rng.uniform(-20, 20, 20000), rng.uniform(-1e6, 1e6, 5000), turns, turns * (1 + 1e-13)],
        "log2": [10.0 ** rng.uniform(-320, 308, 20000), 1 + rng.normal(size=9000) * 10.0 ** rng.uniform(-16, -1, 9000)],
    }
    x["log10"] = [*x["log2"], 10.0 ** np.arange(-22, 23)]
    a = np.concatenate([*x[op], 2.0 ** np.arange(-1074, 1024), EDGES])
    out = np.empty_like(a)
    h.pointwise(out, [a], [(op, 0)], "f8")
    with np.errstate(all="ignore"):
        want = getattr(np, op)(a.astype(np.longdouble))
    error = h.ulp_error(out, want)
    assert error.max() <= (2 if op == "tan" else 1), (a[error.argmax()], out[error.argmax()])
    if op == "log2":
        assert np.array_equal(out[-len(EDGES) - 2098 : -len(EDGES)], np.arange(-1074.0, 1024))
    if op == "log10":
        assert np.array_equal(out[len(a) - len(EDGES) - 2098 - 45 :][:45], np.arange(-22.0, 23))


@pytest.mark.parametrize("op", ["fmod", "mod", "floordiv", "hypot", "atan2"])
def test_quotients_in_float64(op: str, rng: np.random.Generator) -> None:
    """Near and far magnitudes, multiples and what is next to them, every pair of edges."""
    a, b = rng.normal(size=(2, 30000)) * 10.0 ** rng.integers(-8, 8, (2, 30000))
    b[:9000] = rng.integers(1, 60, 9000) / 7
    a[:9000] = b[:9000] * rng.integers(-(2**20), 2**20, 9000)
    a[3000:9000] *= 1 + rng.integers(-1, 2, 6000) * 2.0**-52
    far = 10.0 ** rng.uniform(-320, 308, (2, 6000)) * np.sign(rng.normal(size=(2, 6000)))
    near = far[0] * 2.0 ** rng.uniform(-3, 3, 6000)
    x = np.concatenate([a, far[0], far[0], np.repeat(EDGES, len(EDGES))])
    y = np.concatenate([b, far[1], near, np.tile(EDGES, len(EDGES))])
    out = np.empty_like(x)
    h.pointwise(out, [x, y], [(op, 0, 1)], "f8")
    with np.errstate(all="ignore"):
        if op in ("hypot", "atan2"):
            wide = {"hypot": np.hypot, "atan2": np.arctan2}[op](x.astype(np.longdouble), y.astype(np.longdouble))
            error = h.ulp_error(out, wide)
            assert error.max() <= (1 if op == "hypot" else 2), (x[error.argmax()], y[error.argmax()])
            assert np.array_equal(np.signbit(out[out == out]), np.signbit(wide[out == out]))
        else:
            divided = {"fmod": np.fmod, "mod": np.remainder, "floordiv": np.floor_divide}[op]
            tried = slice(0, len(x) - len(EDGES) ** 2)  # of infinite operands NumPy has rules of its own
            assert np.array_equal(out[tried], divided(x, y)[tried], equal_nan=True)
            alone = np.full(9, x[0])  # a number beside many
            h.pointwise(again := np.empty(9), [alone[:1], y[:9]], [(op, 0, 1)], "f8")
            assert np.array_equal(again, divided(alone, y[:9]))


def test_erfinv_in_float64(rng: np.random.Generator) -> None:
    special = pytest.importorskip("scipy.special")
    near = 1 - 10.0 ** rng.uniform(-7, -1, 8000)
    for x in (
        rng.uniform(-0.9999999, 0.9999999, 20000),
        near,
        10.0 ** rng.uniform(-300, -1, 2000),
        1 - (1 - near) ** 2,
    ):
        out = np.empty_like(x)
        h.pointwise(out, [x], [("erfinv", 0)], "f8")
        np.testing.assert_allclose(out, special.erfinv(x), rtol=2e-15)
        x[:: len(x) // 7] = 1.5  # what has none takes no other along
        h.pointwise(again := np.empty_like(x), [x], [("erfinv", 0)], "f8")
        np.testing.assert_array_equal(again, np.where(x == 1.5, np.nan, out))
    edges, out = np.array([0.0, 1.0, -1.0, 1.5, np.nan]), np.empty(5)
    h.pointwise(out, [edges], [("erfinv", 0)], "f8")
    np.testing.assert_array_equal(out, [0.0, np.inf, -np.inf, np.nan, np.nan])


def test_sin_and_cos_in_float64_near_their_zeros() -> None:
    mpmath = pytest.importorskip("mpmath")
    k = np.concatenate([np.arange(1, 200), np.arange(600_000, 636_000, 97)])
    x = np.concatenate([k * (np.pi / 2), np.nextafter(k * (np.pi / 2), 0), [1e6, 1e6 + 1, 1e22]])
    for op in ("sin", "cos"):
        out = np.empty_like(x)
        h.pointwise(out[:-3], [x[:-3]], [(op, 0)], "f8")
        h.pointwise(out[-3:], [x[-3:]], [(op, 0)], "f8")
        with mpmath.workdps(60):
            want = [float(getattr(mpmath, op)(mpmath.mpf(v))) for v in x.tolist()]
        np.testing.assert_allclose(out, want, rtol=3e-16)


def test_erfc_to_the_last_digits() -> None:
    """Against 40 digits: SciPy's own error shows in the tail."""
    mpmath = pytest.importorskip("mpmath")
    x = np.concatenate([np.linspace(-6, 26.5, 400), np.geomspace(1e-300, 1, 50), [26.6, 27.2, 27.3, 28.0]])
    with mpmath.workdps(40):
        want = np.array([mpmath.erfc(mpmath.mpf(v)) for v in x.tolist()])
        for dtype, limit in (("f8", 5), ("f4", 2.5)):
            out = np.empty(len(x), dtype)
            near = x.astype(dtype)
            h.pointwise(out, [near], [("erfc", 0)], dtype)
            exact = want if dtype == "f8" else [mpmath.erfc(mpmath.mpf(v)) for v in near.tolist()]
            for got, value in zip(out.tolist(), exact, strict=True):
                unit = float(np.spacing(np.array(float(value), dtype)))
                assert abs(mpmath.mpf(got) - value) <= limit * unit, (dtype, got, value)


@pytest.mark.parametrize("op", ["lgamma", "digamma"])
def test_gamma_near_its_zeros_and_joints(op: str) -> None:
    """Relative precision where the results cross zero, and on both sides of where the formulas change."""
    torch = pytest.importorskip("torch")
    near = np.arange(-300, 300) * 2.0**-22
    centres = [0.5, 1.0, 1.4616321, 1.5, 2.0, 2.5, 3.5, 4.5, 10.0]
    centres += [-0.5, -0.504083, -2.4570247, -2.7476827, -3.143581, -3.955294, -4.039361, -7.5]  # zeros, and halves
    x = np.concatenate([*(c + near for c in centres), np.exp(np.linspace(-87, 80, 4001)), np.linspace(-9.3, -0.1, 999)])
    x = np.concatenate([x, -np.exp(np.linspace(-87, 80, 999))])
    x = np.concatenate([x, [1e-45, np.inf, np.nan, 0.0, -0.0, -1.0, -np.inf]]).astype("f4")
    want = getattr(torch, op)(torch.from_numpy(x).double()).numpy()
    out = x.copy()
    h.pointwise(out, [out], [(op, 0)], "f4")  # in place
    finite = np.isfinite(want.astype("f4"))
    np.testing.assert_array_equal(out[~finite], want[~finite].astype("f4"))
    assert h.ulp_error(out[finite], want[finite]).max() <= 0.51
