"""Special functions against SciPy in float64, with their special values and gradients."""

import math

import numpy as np
import pytest
import tesserack as ts
from scipy import special as reference
from tesserack.autograd import gradcheck
from tesserack.ops.special import _incomplete_gamma

RNG = np.random.default_rng(0)
LINE = np.concatenate([RNG.uniform(-50, 50, 400), RNG.uniform(-1, 1, 100), [0.0, -0.0, 1e-300, 2, 8, -8, 1e5]])
ENDS = np.array([np.inf, np.nan])
RIGHT = np.abs(LINE)
CHANCES = np.concatenate([RNG.uniform(0, 1, 300), 10.0 ** RNG.uniform(-300, 0, 100), [0, 1, -1, 2, 0.5]])

CASES = [
    ("i0", reference.i0, np.clip(LINE, -700, 700), 1e-13, 0),
    ("i0e", reference.i0e, np.append(LINE, ENDS), 1e-13, 0),
    ("i1", reference.i1, np.clip(LINE, -700, 700), 1e-13, 1e-300),
    ("i1e", reference.i1e, np.append(LINE, ENDS), 1e-13, 1e-300),
    ("bessel_j0", reference.j0, LINE, 1e-11, 4e-16),
    ("bessel_j1", reference.j1, LINE, 1e-11, 4e-16),
    ("bessel_y0", reference.y0, RIGHT, 1e-11, 4e-16),
    ("bessel_y1", reference.y1, RIGHT, 1e-11, 4e-16),
    ("modified_bessel_k0", reference.k0, RIGHT, 1e-13, 0),
    ("modified_bessel_k1", reference.k1, RIGHT, 1e-13, 0),
    ("scaled_modified_bessel_k0", reference.k0e, RIGHT, 1e-13, 0),
    ("scaled_modified_bessel_k1", reference.k1e, RIGHT, 1e-13, 0),
    ("erfcx", reference.erfcx, np.append(np.clip(LINE, -26, None), ENDS), 1e-13, 0),
    ("ndtr", reference.ndtr, np.append(LINE, ENDS), 1e-12, 1e-300),
    ("log_ndtr", reference.log_ndtr, LINE, 1e-12, 1e-300),
    ("ndtri", reference.ndtri, CHANCES, 1e-13, 1e-15),
    ("entr", reference.entr, np.append(LINE, ENDS), 1e-14, 0),
    ("airy_ai", lambda x: reference.airy(x)[0], np.clip(LINE, -50, 50), 1e-11, 3e-15),
    ("spherical_bessel_j0", lambda x: reference.spherical_jn(0, x), RIGHT, 1e-12, 1e-16),
]


def on(device, values, dtype=ts.float64):
    return ts.tensor(np.asarray(values).tolist(), dtype=dtype, device=device)


@pytest.mark.parametrize(("name", "expected", "x", "rtol", "atol"), CASES, ids=[case[0] for case in CASES])
def test_values(device, name, expected, x, rtol, atol):
    function = getattr(ts.special, name)
    with np.errstate(all="ignore"):
        want = expected(x)
    np.testing.assert_allclose(np.array(function(on(device, x)).tolist()), want, rtol=rtol, atol=atol)
    # float32, where the argument and the result are in its range and not lost between zeros.
    small = x[(np.abs(x) < 30) & (np.abs(x) > 1e-3)]
    got = np.array(function(on(device, small, ts.float32)).tolist())
    with np.errstate(all="ignore"):
        want = expected(np.float32(small).astype(np.float64))
    fits = np.isfinite(want) & (np.abs(want) > 1e-30) & (np.abs(want) < 1e30)
    np.testing.assert_allclose(got[fits], want[fits], rtol=2e-5, atol=2e-6)


def test_limits(device):
    """SciPy gives NaN at infinities, where the functions have limits."""
    ends = on(device, [math.inf, -math.inf, math.nan])
    for name, want in (
        ("i0", [math.inf, math.inf, math.nan]),
        ("i1", [math.inf, -math.inf, math.nan]),
        ("bessel_j0", [0, 0, math.nan]),
        ("bessel_j1", [0, 0, math.nan]),
        ("bessel_y0", [0, math.nan, math.nan]),
        ("bessel_y1", [0, math.nan, math.nan]),
    ):
        np.testing.assert_array_equal(getattr(ts.special, name)(ends).tolist(), want)


@pytest.mark.parametrize("name", ["i0", "i0e", "i1", "i1e", "erfcx", "ndtr", "log_ndtr"])
def test_gradients(device, name):
    x = on(device, [-12.0, -3.0, -0.5, 0.3, 2.0, 7.5, 9.0]).requires_grad_()
    assert gradcheck(getattr(ts.special, name), (x,), eps=1e-5, atol=1e-5, rtol=1e-4)


def test_gradients_of_probabilities(device):
    p = on(device, [0.01, 0.2, 0.5, 0.9]).requires_grad_()
    assert gradcheck(ts.special.ndtri, (p,)) and gradcheck(ts.special.entr, (p,))


@pytest.mark.parametrize("s", [1.5, 2.0, 3.0, 10.0])
def test_zeta(device, s):
    q = np.append(RNG.uniform(0.01, 50, 100), [-1.0, 0.0, -2.5, -0.5])
    got = ts.special.zeta(on(device, s), on(device, q))
    np.testing.assert_allclose(np.array(got.tolist()), reference.zeta(s, q), rtol=1e-12)


@pytest.mark.parametrize("a", [1e-3, 0.5, 1.0, 3.7, 20.0, 150.0])
def test_incomplete_gamma(device, a):
    x = np.concatenate([[0.0, 1e-8], a * np.linspace(0.01, 4, 60), [a + 100.0, np.inf]])
    first = on(device, np.full(x.shape, a))
    for name in ("gammainc", "gammaincc"):
        got = np.array(getattr(ts.special, name)(first, on(device, x)).tolist())
        np.testing.assert_allclose(got, getattr(reference, name)(a, x), rtol=1e-10, atol=1e-300)


def test_incomplete_gamma_at_its_edges(device):
    a, x = np.array([0.0, 0.0, -1.0, 1.0, np.inf, np.inf, np.nan]), np.array([0.0, 1.0, 1.0, -1.0, 1.0, np.inf, 1.0])
    got = np.array(ts.special.gammainc(on(device, a), on(device, x)).tolist())
    np.testing.assert_array_equal(got, [np.nan, 1, np.nan, np.nan, 0, np.nan, np.nan])
    shape = on(device, [0.7, 2.0, 5.0])
    point = on(device, [0.3, 2.5, 9.0]).requires_grad_()
    assert gradcheck(lambda x: ts.special.gammainc(shape, x), (point,))
    assert gradcheck(lambda x: ts.special.gammaincc(shape, x), (point,))
    with pytest.raises(RuntimeError, match="first argument"):
        ts.special.gammainc(shape.requires_grad_(), point).sum().backward()
    with pytest.raises(TypeError, match="expected tensors"):
        ts.special.gammainc(1.0, point)


POLYNOMIALS = [
    ("chebyshev_polynomial_t", reference.eval_chebyt),
    ("chebyshev_polynomial_u", reference.eval_chebyu),
    ("shifted_chebyshev_polynomial_t", reference.eval_sh_chebyt),
    ("shifted_chebyshev_polynomial_u", reference.eval_sh_chebyu),
    ("hermite_polynomial_h", reference.eval_hermite),
    ("hermite_polynomial_he", reference.eval_hermitenorm),
    ("laguerre_polynomial_l", reference.eval_laguerre),
    ("legendre_polynomial_p", reference.eval_legendre),
]


@pytest.mark.parametrize(("name", "expected"), POLYNOMIALS, ids=[name for name, _ in POLYNOMIALS])
def test_polynomials(device, name, expected):
    x, n = np.linspace(-0.95, 0.95, 7), np.arange(7)
    function = getattr(ts.special, name)
    got = function(on(device, x), on(device, n, ts.int64).unsqueeze(1))
    np.testing.assert_allclose(np.array(got.tolist()), expected(n[:, None], x), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(np.array(function(on(device, x), 4).tolist()), expected(4, x), rtol=1e-10)
    assert function(on(device, x), -1).eq(0).all()


@pytest.mark.parametrize("degree", [math.inf, math.nan])
def test_degrees_that_are_not_finite_are_refused(device, degree):
    with pytest.raises(RuntimeError, match="finite degrees"):
        ts.special.legendre_polynomial_p(on(device, [0.5]), on(device, [degree]))


def test_chebyshev_polynomials_of_the_other_kinds(device):
    angle = np.linspace(0.1, 3, 9)
    x = on(device, np.cos(angle))
    for n in range(5):
        v = np.cos((n + 0.5) * angle) / np.cos(0.5 * angle)
        w = np.sin((n + 0.5) * angle) / np.sin(0.5 * angle)
        np.testing.assert_allclose(np.array(ts.special.chebyshev_polynomial_v(x, n).tolist()), v, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(np.array(ts.special.chebyshev_polynomial_w(x, n).tolist()), w, rtol=1e-9, atol=1e-12)


def test_logarithms(device):
    x = on(device, [0.0, 0.0, 2.0, 2.0])
    got = ts.special.xlog1py(x, on(device, [-1.0, math.nan, 0.5, -1.0])).tolist()
    np.testing.assert_allclose(got, [0, math.nan, 2 * math.log(1.5), -math.inf])
    got = ts.special.multigammaln(on(device, [3.0, 7.5]), 3).tolist()
    np.testing.assert_allclose(got, [reference.multigammaln(a, 3) for a in (3.0, 7.5)], rtol=1e-12)
    below = ts.special.multigammaln(on(device, [0.75]), 3).item()  # outside: the sum alone, as PyTorch has it
    assert below == pytest.approx(math.lgamma(0.75) + math.lgamma(0.25) + math.lgamma(-0.25) + 1.5 * math.log(math.pi))
    with pytest.raises(RuntimeError, match="greater than"):
        ts.special.multigammaln(on(device, [3.0]), 0)


def test_operands_of_other_kinds_are_promoted(device):
    yes, half = on(device, [True], ts.bool), on(device, [1.0, 2.0], ts.float16)
    assert ts.special.xlog1py(yes, 2).cpu().tolist() == pytest.approx([math.log(3)])
    assert ts.special.xlog1py(half, yes).dtype == ts.float16
    assert ts.nextafter(yes, half).cpu().tolist() == [1.0, 1.0009765625]
    assert ts.gcd(yes, on(device, [4, 6], ts.int32)).cpu().tolist() == [1, 1]
    assert ts.lcm(on(device, [4, 6], ts.uint8), yes).cpu().tolist() == [4, 6]
    with pytest.raises(NotImplementedError, match="gcd: expected integer operands"):
        ts.gcd(yes, yes)


@pytest.mark.parametrize("s", [2.0, 3.0, 5.0, 9.0])
def test_zeta_left_of_zero(device, s):
    q = np.linspace(-8.9, -0.1, 45) + 0.003
    terms = sum((q + k) ** -s for k in range(9))
    got = ts.special.zeta(ts.tensor(s, dtype=ts.float64), ts.tensor(q, device=device))
    np.testing.assert_allclose(got.cpu().numpy(), terms + reference.zeta(s, q + 9), 1e-12)


def test_the_fraction_of_incomplete_gamma_settles(device, monkeypatch):
    """Where rounding keeps a step a few units from 1, as at some of these, it ended after 200,000 of them."""
    steps = []
    monkeypatch.setattr(_incomplete_gamma, "range", lambda *n: (steps.append(k) or k for k in range(*n)), raising=False)
    a, x = np.logspace(-2, 2, 60), np.logspace(-2, 2, 60)[:, None]
    got = ts.special.gammainc(ts.tensor(a, device=device), ts.tensor(x, device=device))
    np.testing.assert_allclose(got.cpu().numpy(), reference.gammainc(a, x), 1e-11, 1e-300)
    assert steps and max(steps) < 5_000


def test_heaviside_takes_one_dtype(device):
    x = ts.tensor([-1.0, 0.0, 2.0], device=device)
    assert ts.heaviside(x, x.new_full((3,), 5)).tolist() == [0, 5, 1]
    assert ts.heaviside(x.long(), ts.tensor(5, device=device)).tolist() == [0, 5, 1]
    for other in (ts.tensor([1], device=device), ts.tensor(1, device=device), x.double(), x.bool()):
        with pytest.raises(RuntimeError, match="dtypes"):
            ts.heaviside(x, other)
        with pytest.raises(RuntimeError, match="dtypes"):
            x.heaviside_(other)
