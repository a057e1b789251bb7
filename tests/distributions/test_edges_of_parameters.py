"""Gradients and densities where parameters reach their ends, and draws that rounding would spoil."""

import warnings

import pytest
import tesserack as ts
from tesserack import distributions as D


def test_the_gradient_of_no_success_at_even_odds_is_half_a_trial(device):
    logits = ts.tensor(0.0, device=device, requires_grad=True)
    D.Binomial(1.0, logits=logits).log_prob(ts.tensor(0.0, device=device)).backward()
    assert logits.grad == -0.5


@pytest.mark.parametrize(("logits", "value"), [(-1e38, 0.0), (1e38, 1.0)])
def test_densities_on_the_unit_interval_are_finite_for_logits_out_of_reach(logits, value, device):
    given = ts.tensor([logits], device=device, requires_grad=True)
    density = D.ContinuousBernoulli(logits=given).log_prob(ts.tensor([value], device=device))
    density.sum().backward()
    assert density.isfinite().all() and given.grad == 0


def test_half_of_a_cauchy_wants_a_tensor_as_the_others_do():
    with pytest.raises(ValueError, match="Tensor"):
        D.HalfCauchy(1).log_prob(1)


def test_matrices_are_drawn_again_when_rounding_makes_them_singular(device):
    ts.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        low = D.Wishart(ts.tensor([2.01], device=device), ts.eye(3, device=device))
    drawn = low.sample((2000,))
    assert low.support.check(drawn).all()
    assert not low.support.check(low._drawn((2000,))).all()


def test_whole_degrees_of_freedom_are_taken_with_the_dtype_of_the_scale(device):
    drawn = D.Wishart(ts.tensor(4, device=device), ts.eye(2, device=device)).sample((3,))
    assert drawn.dtype is ts.float32 and drawn.shape == (3, 2, 2)
