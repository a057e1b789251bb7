"""Draws follow their distributions, and carry the right gradients."""

import math

import numpy as np
import pytest
import tesserack as ts
from scipy import special, stats
from tesserack import distributions as D
from tesserack.distributions import _samplers

COUNT = 20000
CONTINUOUS = [
    (D.Normal(1.0, 2.0), stats.norm(1, 2)),
    (D.Laplace(1.0, 2.0), stats.laplace(1, 2)),
    (D.Cauchy(1.0, 2.0), stats.cauchy(1, 2)),
    (D.Uniform(1.0, 3.0), stats.uniform(1, 2)),
    (D.Exponential(2.0), stats.expon(scale=0.5)),
    (D.Gamma(0.3, 2.0), stats.gamma(0.3, scale=0.5)),
    (D.Gamma(7.0, 0.5), stats.gamma(7.0, scale=2)),
    (D.Chi2(3.0), stats.chi2(3)),
    (D.Beta(0.5, 2.0), stats.beta(0.5, 2)),
    (D.StudentT(3.0), stats.t(3)),
    (D.FisherSnedecor(3.0, 7.0), stats.f(3, 7)),
    (D.Gumbel(1.0, 2.0), stats.gumbel_r(1, 2)),
    (D.HalfNormal(2.0), stats.halfnorm(scale=2)),
    (D.HalfCauchy(2.0), stats.halfcauchy(scale=2)),
    (D.InverseGamma(3.0, 2.0), stats.invgamma(3, scale=2)),
    (D.LogNormal(0.5, 0.7), stats.lognorm(0.7, scale=np.exp(0.5))),
    (D.Pareto(2.0, 3.0), stats.pareto(3, scale=2)),
    (D.Weibull(2.0, 1.5), stats.weibull_min(1.5, scale=2)),
    (D.GeneralizedPareto(1.0, 2.0, 0.3), stats.genpareto(0.3, 1, 2)),
    (D.VonMises(0.5, 3.0), stats.vonmises(3, 0.5)),
]
DISCRETE = [
    (D.Poisson(0.1), stats.poisson(0.1)),
    (D.Poisson(9.0), stats.poisson(9)),
    (D.Poisson(200.0), stats.poisson(200)),
    (D.Binomial(5, ts.tensor(0.3)), stats.binom(5, 0.3)),
    (D.Binomial(1000, ts.tensor(0.9)), stats.binom(1000, 0.9)),
    (D.NegativeBinomial(3.5, ts.tensor(0.4)), stats.nbinom(3.5, 0.6)),
    (D.Geometric(0.3), stats.geom(0.3, loc=-1)),
]


@pytest.mark.parametrize(("ours", "reference"), CONTINUOUS, ids=lambda d: type(d).__name__)
def test_continuous_draws(ours, reference):
    ts.manual_seed(1)
    drawn = np.array(ours.sample((COUNT,)).tolist())
    assert stats.kstest(drawn, reference.cdf).pvalue > 1e-4


@pytest.mark.parametrize(("ours", "reference"), DISCRETE, ids=lambda d: type(d).__name__)
def test_discrete_draws(ours, reference):
    ts.manual_seed(1)
    drawn = np.array(ours.sample((COUNT,)).tolist())
    # Spread over the unit interval below each integer, the variate is continuous.
    spread = drawn + np.random.default_rng(0).random(COUNT)

    def cdf(z):
        k = np.floor(z)
        return reference.cdf(k - 1) + (z - k) * reference.pmf(k)

    assert stats.kstest(spread, cdf).pvalue > 1e-4


def test_counts_of_outcomes():
    ts.manual_seed(0)
    probs = ts.tensor([0.1, 0.2, 0.7])
    for drawn in (
        D.Categorical(probs).sample((COUNT,)).bincount(minlength=3),
        D.OneHotCategorical(probs).sample((COUNT,)).sum(0),
        D.Multinomial(COUNT, probs).sample(),
    ):
        assert stats.chisquare(np.array(drawn.tolist()), COUNT * np.array([0.1, 0.2, 0.7])).pvalue > 1e-4


@pytest.mark.parametrize("alpha", [0.02, 0.5, 1.0, 4.0, 25.0, 35.0, 300.0])
def test_gamma_gradients_are_those_at_a_fixed_probability(alpha):
    ts.manual_seed(0)
    shape = ts.full((500,), alpha, dtype=ts.float64, requires_grad=True)
    log_x = _samplers._StandardLogGamma.apply(shape, None)
    log_x.sum().backward()
    x = np.exp(np.array(log_x.tolist()))
    low, high, step = special.gammainc(alpha, x), special.gammaincc(alpha, x), alpha * 1e-5

    def quantile(a):
        return np.where(low < 0.5, special.gammaincinv(a, low), special.gammainccinv(a, high))

    representable = quantile(alpha - step) > 1e-290
    want = (np.log(quantile(alpha + step)) - np.log(quantile(alpha - step))) / (2 * step)
    got = np.array(shape.grad.tolist())
    np.testing.assert_allclose(got[representable], want[representable], rtol=5e-5)


@pytest.mark.parametrize("b", [0.01, 0.5, 10.0, 200.0])
@pytest.mark.parametrize("a", [0.01, 0.1, 1.0, 30.0, 250.0])
def test_beta_gradients_are_those_at_a_fixed_probability(a, b):
    """-(dF / da) / f, by differences of the cumulative distribution that goes to zero at the nearer end."""
    first = ts.full((50,), a, dtype=ts.float64, requires_grad=True)
    drawn = D.Beta(first, ts.full((50,), b, dtype=ts.float64)).rsample()
    drawn.sum().backward()
    x = drawn.detach().numpy()
    step = 1e-4 * a / (1 + math.sqrt(a))
    below = (stats.beta.cdf(x, a + step, b) - stats.beta.cdf(x, a - step, b)) / (2 * step)
    above = (stats.beta.sf(x, a + step, b) - stats.beta.sf(x, a - step, b)) / (2 * step)
    by_a = np.where(stats.beta.cdf(x, a, b) < 0.5, below, -above)
    expected = -by_a / stats.beta.pdf(x, a, b)
    told = (x > 1e-300) & (x < 1 - 1e-9)  # 1 - x has few digits nearer to one, and its powers are not known
    np.testing.assert_allclose(first.grad.numpy()[told], expected[told], rtol=2e-4, atol=1e-300)


def test_dirichlet_gradients_by_whichever_way():
    """Moments' derivatives, for concentrations that add up to less and more than the limit of the series."""
    for concentration in ([0.3, 0.6, 1.1], [200.0, 300.0, 400.0]):
        ts.manual_seed(0)
        a = ts.tensor(concentration, dtype=ts.float64, requires_grad=True)
        D.Dirichlet(a.expand(COUNT, 3)).rsample()[:, 0].mean().backward()
        total = sum(concentration)
        expected = [(total - concentration[0]) / total**2] + [-concentration[0] / total**2] * 2
        np.testing.assert_allclose(a.grad.numpy(), expected, rtol=0.05)


def test_reparameterised_draws_move_with_their_parameters():
    ts.manual_seed(0)
    concentration = ts.tensor([0.7, 2.0, 5.0], dtype=ts.float64, requires_grad=True)
    first = D.Dirichlet(concentration).rsample((COUNT,)).mean(0)[0]
    (gradient,) = ts.autograd.grad(first, concentration)
    # The mean is a / sum(a), whose gradient is known.
    total = 7.7
    want = np.array([total - 0.7, -0.7, -0.7]) / total**2
    np.testing.assert_allclose(np.array(gradient.tolist()), want, atol=0.01)


def test_draws_are_repeatable_and_empty_batches_stand():
    gamma = D.Gamma(ts.tensor([0.5, 3.0]), 1.0)
    ts.manual_seed(3)
    first = gamma.sample((4,))
    ts.manual_seed(3)
    assert first.equal(gamma.sample((4,)))
    assert D.Poisson(ts.ones(0)).sample((3,)).shape == (3, 0)
    assert D.Gamma(ts.ones(0), ts.ones(0)).rsample().shape == (0,)
    assert D.Categorical(ts.ones(2, 3)).sample((0,)).shape == (0, 2)


def test_draws_of_parameters_that_are_not_finite_end():
    shapes = ts.tensor([math.inf, math.nan, 1.0])
    assert D.Gamma(shapes, 1.0, validate_args=False).sample().isfinite().tolist() == [False, False, True]
    assert D.VonMises(0.0, ts.tensor([math.nan, 1.0]), validate_args=False).sample().isfinite()[1]


def test_draws_of_small_concentrations_lie_on_the_simplex():
    ts.manual_seed(0)
    drawn = D.Dirichlet(ts.full((4,), 1e-3)).sample((100,))
    assert drawn.isfinite().all()
    assert D.constraints.simplex.check(drawn).all()


def test_arguments_are_checked():
    with pytest.raises(ValueError, match=r"Expected parameter scale .* GreaterThan\(lower_bound=0.0\)"):
        D.Normal(0.0, -1.0)
    with pytest.raises(ValueError, match="within the support"):
        D.Exponential(1.0).log_prob(ts.tensor(-1.0))
    with pytest.raises(ValueError, match="not both"):
        D.Bernoulli(probs=0.5, logits=0.0)
    with pytest.raises(ValueError, match="event_shape"):
        D.Dirichlet(ts.ones(3)).log_prob(ts.ones(2) / 2)
    with pytest.raises(NotImplementedError, match="No KL"):
        D.kl_divergence(D.VonMises(0.0, 1.0), D.Normal(0.0, 1.0))
    with pytest.raises(NotImplementedError, match="cdf"):
        D.Dirichlet(ts.ones(3)).cdf(ts.ones(3) / 3)
    assert D.Normal(0.0, -1.0, validate_args=False).scale == -1


def test_transformed_distributions():
    base = D.Normal(ts.zeros(3), ts.ones(3))
    made = D.TransformedDistribution(base, [D.AffineTransform(1.0, 2.0), D.ExpTransform()])
    want = stats.lognorm(2, scale=np.e)
    x = ts.tensor([0.5, 1.0, 4.0])
    np.testing.assert_allclose(np.array(made.log_prob(x).tolist()), want.logpdf([0.5, 1, 4]), rtol=1e-5)
    np.testing.assert_allclose(np.array(made.cdf(x).tolist()), want.cdf([0.5, 1, 4]), rtol=1e-5)
    vector = D.Independent(base, 1)
    assert vector.event_shape == (3,) and vector.log_prob(x).shape == ()
    with pytest.raises(ValueError, match="reinterpreted_batch_ndims"):
        D.Independent(base, 2)


@pytest.mark.parametrize(
    "constraint",
    [
        D.constraints.positive,
        D.constraints.less_than(2.0),
        D.constraints.interval(-1.0, 3.0),
        D.constraints.unit_interval,
        D.constraints.simplex,
        D.constraints.lower_cholesky,
        D.constraints.corr_cholesky,
        D.constraints.independent(D.constraints.positive, 1),
    ],
    ids=str,
)
def test_transforms_reach_their_constraint(constraint):
    ts.manual_seed(0)
    transform = D.transform_to(constraint)
    shape = (5, 3, 3) if constraint.event_dim == 2 and constraint is not D.constraints.corr_cholesky else (5, 3)
    x = ts.randn(shape, dtype=ts.float64)
    y = transform(x)
    assert constraint.check(y).all()
    np.testing.assert_allclose(np.array(transform(transform.inv(y)).tolist()), np.array(y.tolist()), rtol=1e-6)


def test_variates_of_impossible_parameters():
    shapes = ts.tensor([-5.0, -1.0, float("nan"), float("inf"), 0.0])
    assert ts._standard_gamma(shapes).isnan().tolist() == [True, True, True, False, False]
    assert ts._standard_gamma(shapes)[3:].tolist() == [float("inf"), 0.0]
    assert ts.poisson(ts.tensor([0.0, float("inf")])).tolist() == [0.0, float("inf")]
    with pytest.raises(RuntimeError, match="non-negative"):
        ts.poisson(ts.tensor([float("nan")]))
