"""Probability distributions, transforms and divergences, with the names of ``torch.distributions``.

>>> import tesserack as ts
>>> from tesserack.distributions import Normal
>>> scale = ts.tensor(2.0, requires_grad=True)
>>> Normal(0.0, scale).rsample((3,)).sum().backward()  # draws are differentiable
>>> scale.grad.shape
tesserack.Size([])
"""

from __future__ import annotations

from tesserack.distributions import _kl_cross as _kl_cross
from tesserack.distributions import _kl_same as _kl_same
from tesserack.distributions import constraints as constraints
from tesserack.distributions import transforms as transforms
from tesserack.distributions.bernoulli import Bernoulli
from tesserack.distributions.beta import Beta
from tesserack.distributions.binomial import Binomial
from tesserack.distributions.categorical import Categorical
from tesserack.distributions.cauchy import Cauchy
from tesserack.distributions.chi2 import Chi2
from tesserack.distributions.constraint_registry import biject_to, transform_to
from tesserack.distributions.continuous_bernoulli import ContinuousBernoulli
from tesserack.distributions.dirichlet import Dirichlet
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.exp_family import ExponentialFamily
from tesserack.distributions.exponential import Exponential
from tesserack.distributions.fishersnedecor import FisherSnedecor
from tesserack.distributions.gamma import Gamma
from tesserack.distributions.generalized_pareto import GeneralizedPareto
from tesserack.distributions.geometric import Geometric
from tesserack.distributions.gumbel import Gumbel
from tesserack.distributions.half_cauchy import HalfCauchy
from tesserack.distributions.half_normal import HalfNormal
from tesserack.distributions.independent import Independent
from tesserack.distributions.inverse_gamma import InverseGamma
from tesserack.distributions.kl import kl_divergence, register_kl
from tesserack.distributions.kumaraswamy import Kumaraswamy
from tesserack.distributions.laplace import Laplace
from tesserack.distributions.lkj_cholesky import LKJCholesky
from tesserack.distributions.log_normal import LogNormal
from tesserack.distributions.logistic_normal import LogisticNormal
from tesserack.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from tesserack.distributions.mixture_same_family import MixtureSameFamily
from tesserack.distributions.multinomial import Multinomial
from tesserack.distributions.multivariate_normal import MultivariateNormal
from tesserack.distributions.negative_binomial import NegativeBinomial
from tesserack.distributions.normal import Normal
from tesserack.distributions.one_hot_categorical import OneHotCategorical, OneHotCategoricalStraightThrough
from tesserack.distributions.pareto import Pareto
from tesserack.distributions.poisson import Poisson
from tesserack.distributions.relaxed_bernoulli import RelaxedBernoulli
from tesserack.distributions.relaxed_categorical import RelaxedOneHotCategorical
from tesserack.distributions.studentT import StudentT
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import *  # noqa: F403
from tesserack.distributions.uniform import Uniform
from tesserack.distributions.von_mises import VonMises
from tesserack.distributions.weibull import Weibull
from tesserack.distributions.wishart import Wishart

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
