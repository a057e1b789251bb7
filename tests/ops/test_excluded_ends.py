"""Samplers whose range excludes an end never give it, in any dtype and however many are drawn."""

from __future__ import annotations

import itertools
import math

import pytest
import tesserack as ts

FLOATS = [ts.float32, ts.float64, ts.float16, ts.bfloat16]
MANY = 2**24 + 2**20  # a uniform float32 is exactly 0 once in 2^24 draws
FEW = 2**18


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_exponential_is_never_zero(dtype: ts.dtype, device: ts.device) -> None:
    """Zeros would be picked by argmax(p / q), which draws categories, whatever their probability."""
    draws = ts.empty(MANY if dtype is ts.float32 else FEW, dtype=dtype, device=device).exponential_()
    assert draws.amin().item() > 0
    assert math.isfinite(draws.amax().item())
    for rate in (1e-6, 1e30, 1e-40):
        draws = ts.empty(1000, dtype=dtype, device=device).exponential_(rate)
        assert draws.amin().item() > 0, rate
        assert math.isfinite(draws.amax().item()), rate
    assert ts.empty(3, dtype=dtype, device=device).exponential_(float("inf")).tolist() == [0, 0, 0]


def test_the_least_exponential_waits_half_a_step(device: ts.device) -> None:
    """What a uniform number of zero gives lies between zero and what the next one gives."""
    draws = ts.empty(MANY, device=device).exponential_()
    least = draws.unique()[:2].tolist() if device.type == "cpu" else [draws.amin().item(), 1.0]
    assert 2**-26 < least[0] < least[1]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "ends", [(1.0, 2.0), (-1.0, 0.0), (0.1, 0.3), (1000.0, 1001.0), (-3.0, 1e4), (0.0, 1e-3), (5.0, 5.0)]
)
def test_uniform_stays_below(ends: tuple[float, float], dtype: ts.dtype, device: ts.device) -> None:
    """From one end, which it may reach, to below the other."""
    low, high = (ts.tensor(end, dtype=dtype).item() for end in ends)
    draws = ts.empty(FEW, dtype=dtype, device=device).uniform_(*ends)
    assert draws.amin().item() >= low
    assert draws.amax().item() < high or low == high or draws.amax().item() == low
    if high - low > 1e-4 and low < high and dtype is not ts.bfloat16:
        assert draws.amax().item() >= low + (high - low) / 2


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_other_continuous_draws_are_finite(dtype: ts.dtype, device: ts.device) -> None:
    """Their tails reach beyond float16, their least numbers below it."""
    for mean, std in ((1.0, 2.0), (-20.0, 2.0), (20.0, 1.0)):
        draws = ts.empty(FEW, dtype=dtype, device=device).log_normal_(mean, std)
        assert draws.amin().item() > 0
        assert math.isfinite(draws.amax().item())
    draws = ts.empty(FEW, dtype=dtype, device=device).cauchy_(0, 100)
    assert ts.isfinite(draws).all()
    assert ts.empty(3, dtype=dtype, device=device).cauchy_(-math.inf, 1).tolist() == [-math.inf] * 3


@pytest.mark.parametrize("dtype", [ts.uint8, ts.int8, ts.int16, ts.float16], ids=str)
def test_geometric_counts_from_one(dtype: ts.dtype, device: ts.device) -> None:
    """Even where there are more tosses than the dtype holds."""
    draws = ts.empty(FEW, dtype=dtype, device=device).geometric_(1e-6)
    assert draws.amin().item() >= 1
    assert draws.double().isfinite().all()


@pytest.mark.filterwarnings("ignore:random_")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_integers_of_a_range_stay_in_it(dtype: ts.dtype, device: ts.device) -> None:
    """Where the dtype holds not every whole number, a draw is not rounded to the excluded end."""
    for low, high in itertools.product((0, -5001, 4097), (4098, 8192, 65504, 10**9)):
        if high > ts.finfo(dtype).max or (dtype is ts.float16 and low > 4096 and high == 4098):
            continue
        draws = ts.empty(5000, dtype=dtype, device=device).random_(low, high)
        assert low <= draws.amin().item() <= draws.amax().item() < high or high - low < 100, (low, high)


def test_samples_of_distributions(device: ts.device) -> None:
    """Supports without their ends, at parameters where rounding reaches them."""
    from tesserack import distributions as d

    def number(x: float, dtype: ts.dtype = ts.float32) -> ts.Tensor:
        return ts.tensor(x, dtype=dtype, device=device)

    with ts.no_grad():
        assert d.Exponential(number(1.0)).sample((MANY,)).amin().item() > 0
        assert d.Exponential(number(3e38)).sample((1000,)).amin().item() > 0
        assert d.Uniform(number(1.0), number(2.0)).sample((MANY,)).amax().item() < 2
        shares = d.Dirichlet(ts.full((2,), 1e-3, device=device)).sample((1000,))
        assert shares.amin().item() > 0 and shares.amax().item() < 1
        halves = d.Beta(number(0.01, ts.float64), number(0.01, ts.float64)).sample((1000,))
        assert halves.amin().item() > 0 and halves.amax().item() < 1
    rate = number(3e38).requires_grad_()
    d.Exponential(rate).rsample((10,)).sum().backward()
    assert rate.grad is not None and math.isfinite(rate.grad.item())
