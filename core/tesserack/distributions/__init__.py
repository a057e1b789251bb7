"""Probability distributions, transforms and divergences, with the names of ``torch.distributions``.

>>> import tesserack as ts
>>> from tesserack.distributions import Normal
>>> scale = ts.tensor(2.0, requires_grad=True)
>>> Normal(0.0, scale).rsample((3,)).sum().backward()  # draws are differentiable
>>> scale.grad.shape
tesserack.Size([])
"""

from __future__ import annotations

from types import ModuleType

from tesserack.distributions import _kl_cross as _kl_cross
from tesserack.distributions import _kl_same as _kl_same
from tesserack.distributions import constraints as constraints
from tesserack.distributions import transforms as transforms
from tesserack.distributions.bernoulli import Bernoulli, ContinuousBernoulli, RelaxedBernoulli
from tesserack.distributions.beta import Beta, Dirichlet, Kumaraswamy
from tesserack.distributions.binomial import Binomial, Geometric, NegativeBinomial
from tesserack.distributions.categorical import (
    Categorical,
    Multinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    RelaxedOneHotCategorical,
)
from tesserack.distributions.cauchy import Cauchy, HalfCauchy
from tesserack.distributions.constraint_registry import biject_to, transform_to
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.exp_family import ExponentialFamily
from tesserack.distributions.exponential import Exponential, Gumbel, Laplace, Weibull
from tesserack.distributions.gamma import Chi2, FisherSnedecor, Gamma, InverseGamma, StudentT
from tesserack.distributions.independent import Independent
from tesserack.distributions.kl import kl_divergence, register_kl
from tesserack.distributions.mixture_same_family import MixtureSameFamily
from tesserack.distributions.multivariate_normal import LowRankMultivariateNormal, MultivariateNormal
from tesserack.distributions.normal import HalfNormal, LogisticNormal, LogNormal, Normal
from tesserack.distributions.pareto import GeneralizedPareto, Pareto
from tesserack.distributions.poisson import Poisson
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import *  # noqa: F403
from tesserack.distributions.uniform import Uniform
from tesserack.distributions.von_mises import VonMises
from tesserack.distributions.wishart import LKJCholesky, Wishart
from tesserack.utils import homes

__all__ = [
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ContinuousBernoulli",
    "Dirichlet",
    "Distribution",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "StudentT",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "kl_divergence",
    "register_kl",
    "transform_to",
]
__all__ += transforms.__all__


def __getattr__(name: str) -> ModuleType:
    """Modules that share a file, as ``half_normal``."""
    return homes.joined(__name__, name)
