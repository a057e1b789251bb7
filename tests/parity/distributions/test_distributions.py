"""Distributions beside PyTorch's: moments, densities, supports, divergences, names and signatures."""

import inspect
import itertools

import numpy as np
import pytest
import tesserack as ts
import torch
from tesserack import distributions as ours

pytestmark = pytest.mark.filterwarnings("ignore:Singular sample detected")
theirs = torch.distributions
A = np.array
COVARIANCE = A([[2.0, 0.5, 0.1], [0.5, 1.0, 0.0], [0.1, 0.0, 1.5]])
TRIL = np.linalg.cholesky(COVARIANCE)
SIMPLEX = A([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])

# Batches of two, so that any two of the same event shape can be compared.
CASES = [
    ("Bernoulli", {"probs": A([0.2, 0.7])}),
    ("Bernoulli", {"logits": A([0.2, -1.0])}),
    ("Beta", {"concentration1": A([0.5, 2.0]), "concentration0": A([1.5, 3.0])}),
    ("Binomial", {"total_count": 5, "probs": A([0.2, 0.7])}),
    ("Binomial", {"total_count": A([3.0, 3.0]), "logits": A([0.1, -2.0])}),
    ("Categorical", {"probs": SIMPLEX}),
    ("Categorical", {"logits": A([[0.1, 2.0, 3.0], [0.0, -1.0, 0.5]])}),
    ("Cauchy", {"loc": A([0.0, 1.0]), "scale": A([1.0, 2.0])}),
    ("Chi2", {"df": A([1.0, 3.0])}),
    ("ContinuousBernoulli", {"probs": A([0.2, 0.9])}),
    ("ContinuousBernoulli", {"probs": A([0.5, 0.4995])}),
    ("Dirichlet", {"concentration": A([[0.5, 1.0, 3.0], [2.0, 2.0, 2.0]])}),
    ("Exponential", {"rate": A([0.5, 2.0])}),
    ("FisherSnedecor", {"df1": A([3.0, 5.0]), "df2": A([5.0, 7.0])}),
    ("Gamma", {"concentration": A([0.5, 3.0]), "rate": A([1.0, 2.0])}),
    ("GeneralizedPareto", {"loc": A([0.0, 1.0]), "scale": A([1.0, 2.0]), "concentration": A([0.2, -0.3])}),
    ("Geometric", {"probs": A([0.2, 0.7])}),
    ("Gumbel", {"loc": A([0.0, 1.0]), "scale": A([1.0, 2.0])}),
    ("HalfCauchy", {"scale": A([1.0, 2.0])}),
    ("HalfNormal", {"scale": A([1.0, 2.0])}),
    ("InverseGamma", {"concentration": A([3.0, 4.0]), "rate": A([1.0, 2.0])}),
    ("Kumaraswamy", {"concentration1": A([1.5, 2.0]), "concentration0": A([2.0, 3.0])}),
    ("LKJCholesky", {"dim": 3, "concentration": A([0.5, 2.0])}),
    ("Laplace", {"loc": A([0.0, 1.0]), "scale": A([1.0, 2.0])}),
    ("LogNormal", {"loc": A([0.0, 1.0]), "scale": A([1.0, 0.5])}),
    ("LogisticNormal", {"loc": A([[0.0, 1.0], [0.5, -1.0]]), "scale": A([1.0, 0.5])}),
    (
        "LowRankMultivariateNormal",
        {"loc": A([0.0, 1.0, 2.0]), "cov_factor": A([[1.0], [2.0], [0.5]]), "cov_diag": A([1.0, 0.5, 2.0])},
    ),
    ("Multinomial", {"total_count": 4, "probs": SIMPLEX}),
    ("MultivariateNormal", {"loc": A([0.0, 1.0, 2.0]), "covariance_matrix": COVARIANCE}),
    ("MultivariateNormal", {"loc": A([[0.0, 1.0, 2.0], [1.0, 1.0, 1.0]]), "precision_matrix": COVARIANCE}),
    ("MultivariateNormal", {"loc": A([0.0, 1.0, 2.0]), "scale_tril": np.stack([TRIL, 2 * TRIL])}),
    ("NegativeBinomial", {"total_count": A([2.0, 3.5]), "probs": A([0.3, 0.55])}),
    ("Normal", {"loc": A([0.0, 1.0]), "scale": A([1.0, 2.0])}),
    ("OneHotCategorical", {"probs": SIMPLEX}),
    ("OneHotCategoricalStraightThrough", {"probs": SIMPLEX}),
    ("Pareto", {"scale": A([1.0, 2.0]), "alpha": A([3.0, 4.0])}),
    ("Poisson", {"rate": A([0.5, 12.0])}),
    ("RelaxedBernoulli", {"temperature": A(0.5), "probs": A([0.2, 0.7])}),
    ("RelaxedOneHotCategorical", {"temperature": A(0.5), "probs": SIMPLEX}),
    ("StudentT", {"df": A([3.0, 5.0]), "loc": A([0.0, 1.0]), "scale": A([1.0, 2.0])}),
    ("Uniform", {"low": A([0.0, 1.0]), "high": A([1.0, 3.0])}),
    ("VonMises", {"loc": A([0.0, 1.0]), "concentration": A([1.0, 20.0])}),
    ("Weibull", {"scale": A([1.0, 2.0]), "concentration": A([1.5, 3.0])}),
    ("Wishart", {"df": A([4.0, 5.0]), "covariance_matrix": COVARIANCE}),
]
IDS = [f"{name}-{k}" for k, (name, _) in enumerate(CASES)]
# PyTorch's mode takes the logarithm of a negative number for concentration0 > 1.
WRONG_THERE = {("Kumaraswamy", "mode")}
# Infinite there where the supports are equal, which is finite.
INFINITE_THERE = {("Uniform", "ContinuousBernoulli"), ("ContinuousBernoulli", "Uniform")}


def tensor(module, value):
    value = np.asarray(value)
    return module.tensor(value.tolist(), dtype=module.float64 if value.dtype == np.float64 else module.int64)


def make(module, kinds, case):
    name, arguments = case
    made = {k: tensor(module, v) if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
    return getattr(kinds, name)(**made)


@pytest.fixture(autouse=True)
def float64_there():
    """PyTorch's GeneralizedPareto makes constants of the default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def close(a, b, what):
    x, y = np.array(a.detach().tolist()), np.array(b.detach().tolist())
    assert x.shape == y.shape, f"{what}: {x.shape} for {y.shape}"
    # The polynomials of its Bessel functions have eight digits.
    tolerance = 1e-5 if "VonMises" in what else 1e-6
    np.testing.assert_allclose(x, y, rtol=tolerance, atol=1e-7 if "VonMises" in what else 1e-8, err_msg=what)


def compare(what, mine, other, call):
    """The same value, or NotImplementedError, or another error, from both."""
    try:
        want = call(other)
    except Exception as e:
        # What PyTorch has not, or not for this case, may be here.
        assert isinstance(e, (NotImplementedError, ValueError, RuntimeError)), what
        return
    close(call(mine), want, what)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_moments(case):
    mine, other = make(ts, ours, case), make(torch, theirs, case)
    assert tuple(mine.batch_shape) == tuple(other.batch_shape)
    assert tuple(mine.event_shape) == tuple(other.event_shape)
    for name in ("mean", "mode", "variance", "stddev"):
        if (case[0], name) not in WRONG_THERE:
            compare(f"{case[0]}.{name}", mine, other, lambda d, name=name: getattr(d, name))
    compare(f"{case[0]}.entropy", mine, other, lambda d: d.entropy())
    if other.has_enumerate_support:
        compare(f"{case[0]}.enumerate_support", mine, other, lambda d: d.enumerate_support())
    assert mine.has_rsample == other.has_rsample
    assert type(mine.support).__name__.strip("_") == type(other.support).__name__.strip("_")


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_densities(case):
    torch.manual_seed(0)
    mine, other = make(ts, ours, case), make(torch, theirs, case)
    values = other.sample((4,)).numpy()
    for what, call in (("log_prob", lambda d, v: d.log_prob(v)), ("cdf", lambda d, v: d.cdf(v))):
        try:
            want = call(other, tensor(torch, values))
        except NotImplementedError:
            continue
        close(call(mine, tensor(ts, values)), want, f"{case[0]}.{what}")
    chances = A([[0.2, 0.6], [0.7, 0.01]])
    compare(
        f"{case[0]}.icdf", mine, other, lambda d: d.icdf(tensor(ts if d is mine else torch, chances))
    ) if not other.event_shape else None


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_log_prob_gradients(case):
    torch.manual_seed(0)
    values = make(torch, theirs, case).sample((4,)).numpy()
    gradients = []
    for module, kinds in ((ts, ours), (torch, theirs)):
        leaves = {k: tensor(module, v).requires_grad_() for k, v in case[1].items() if isinstance(v, np.ndarray)}
        made = getattr(kinds, case[0])(**{**case[1], **leaves})
        made.log_prob(tensor(module, values)).sum().backward()
        gradients.append({k: leaf.grad for k, leaf in leaves.items()})
    for name, want in gradients[1].items():
        if want is not None:
            close(gradients[0][name], want, f"{case[0]}: gradient of {name}")


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_shapes_of_samples(case):
    mine, other = make(ts, ours, case), make(torch, theirs, case)
    shape = (3, *other.batch_shape)
    for d, want in ((mine, other), (mine.expand(shape), other.expand(shape))):
        for sample_shape in ((), (5,), (2, 3)):
            assert tuple(d.sample(sample_shape).shape) == tuple(want.sample(sample_shape).shape)
    assert mine.sample().dtype == getattr(ts, str(other.sample().dtype).removeprefix("torch."))


PAIRS = [
    (a, b)
    for a, b in itertools.product(CASES, CASES)
    if any(issubclass(getattr(theirs, a[0]), p) and issubclass(getattr(theirs, b[0]), q)
           for p, q in theirs.kl._KL_REGISTRY if p is not theirs.ExponentialFamily)
]  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0][0]}-{pair[1][0]}")
def test_divergences(pair):
    if (pair[0][0], pair[1][0]) in INFINITE_THERE:
        return
    made = []
    for module, kinds in ((ts, ours), (torch, theirs)):
        p, q = (make(module, kinds, case) for case in pair)
        made.append((p, q))
    try:
        want = theirs.kl_divergence(*made[1])
    except (NotImplementedError, ValueError, RuntimeError):
        return
    close(ours.kl_divergence(*made[0]), want, f"{pair[0][0]} from {pair[1][0]}")


def test_names_and_signatures():
    for name in theirs.__all__:
        mine, other = getattr(ours, name), getattr(theirs, name)
        if inspect.isclass(other):
            want, got = (list(inspect.signature(kind.__init__).parameters) for kind in (other, mine))
            assert got == want, name
    for part in ("constraints", "transforms"):
        missing = set(getattr(theirs, part).__all__) - set(getattr(ours, part).__all__)
        assert not missing


TRANSFORMS = [
    ("ExpTransform", {}, A([-1.0, 0.5])),
    ("PowerTransform", {"exponent": A(2.5)}, A([0.5, 2.0])),
    ("SigmoidTransform", {}, A([-1.0, 0.5])),
    ("SoftplusTransform", {}, A([-1.0, 0.5])),
    ("TanhTransform", {}, A([-1.0, 0.5])),
    ("AffineTransform", {"loc": A([1.0, 2.0]), "scale": A([-2.0, 3.0])}, A([-1.0, 0.5])),
    ("AffineTransform", {"loc": 1.0, "scale": -2.0, "event_dim": 1}, A([[-1.0, 0.5]])),
    ("StickBreakingTransform", {}, A([[-1.0, 0.5], [0.0, 2.0]])),
    ("SoftmaxTransform", {}, A([[-1.0, 0.5], [0.0, 2.0]])),
    ("LowerCholeskyTransform", {}, A([[[-1.0, 0.5], [0.0, 2.0]]])),
    ("PositiveDefiniteTransform", {}, A([[[-1.0, 0.5], [0.0, 2.0]]])),
    ("CorrCholeskyTransform", {}, A([[-1.0, 0.5, 0.2]])),
    ("ReshapeTransform", {"in_shape": (4,), "out_shape": (2, 2)}, A([[-1.0, 0.5, 0.0, 2.0]])),
]


@pytest.mark.parametrize("case", TRANSFORMS, ids=lambda case: case[0])
def test_transforms(case):
    name, arguments, x = case
    results = []
    for module, kinds in ((ts, ours.transforms), (torch, theirs.transforms)):
        made = {k: tensor(module, v) if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
        transform = getattr(kinds, name)(**made)
        value = tensor(module, x)
        y = transform(value)
        try:
            jacobian = transform.log_abs_det_jacobian(value, y)
        except NotImplementedError:
            jacobian = None
        shapes = tuple(transform.forward_shape(x.shape)), tuple(transform.inverse_shape(tuple(y.shape)))
        results.append((y, transform.inv(y), jacobian, shapes, transform.bijective))
    mine, other = results
    for a, b in zip(mine[:3], other[:3], strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            close(a, b, name)
    assert mine[3:] == other[3:]
