"""Initialisation: distributions, fans, orthogonality."""

import math

import numpy as np
import pytest
import tesserack as ts
from tesserack import nn
from tesserack.nn import init


def values(t):
    return np.array(t.detach().cpu().flatten().tolist())


@pytest.fixture(autouse=True)
def seeded():
    ts.manual_seed(0)


BIG = (200, 50, 3, 3)  # fan in 450, fan out 1800
UNIFORM = {
    "uniform": (lambda w: init.uniform_(w, -2, 3), -2, 3),
    "xavier": (init.xavier_uniform_, -math.sqrt(6 / 2250), math.sqrt(6 / 2250)),
    "xavier gain": (lambda w: init.xavier_uniform_(w, 2.0), -2 * math.sqrt(6 / 2250), 2 * math.sqrt(6 / 2250)),
    "kaiming": (lambda w: init.kaiming_uniform_(w, nonlinearity="relu"), -math.sqrt(6 / 450), math.sqrt(6 / 450)),
    "kaiming a": (lambda w: init.kaiming_uniform_(w, a=math.sqrt(5)), -math.sqrt(1 / 450), math.sqrt(1 / 450)),
}
NORMAL = {
    "normal": (lambda w: init.normal_(w, 1.0, 2.0), 1.0, 2.0),
    "xavier": (init.xavier_normal_, 0, math.sqrt(2 / 2250)),
    "kaiming": (init.kaiming_normal_, 0, math.sqrt(2 / 450)),
    "kaiming out": (lambda w: init.kaiming_normal_(w, mode="fan_out", nonlinearity="linear"), 0, math.sqrt(1 / 1800)),
}


@pytest.mark.parametrize("name", UNIFORM)
def test_uniform_distributions(name, device):
    fill, low, high = UNIFORM[name]
    w = ts.empty(BIG, device=device, requires_grad=True)
    assert fill(w) is w and w.requires_grad and w.is_leaf
    v = values(w)
    assert low <= v.min() < low + 0.01 * (high - low) and high - 0.01 * (high - low) < v.max() <= high
    assert abs(v.mean() - (low + high) / 2) < 0.01 * (high - low)


@pytest.mark.parametrize("name", NORMAL)
def test_normal_distributions(name, device):
    fill, mean, std = NORMAL[name]
    v = values(fill(ts.empty(BIG, device=device)))
    assert abs(v.mean() - mean) < 0.02 * std and abs(v.std() / std - 1) < 0.02


def test_truncated_normal(device):
    v = values(init.trunc_normal_(ts.empty(200, 200, device=device), 0.5, 2.0, -1.0, 2.0))
    assert v.min() >= -1 and v.max() <= 2 and np.unique(v).size > 10000
    below = ((v < 0.5).mean() - 0.5) * 2  # P(-1 < x < .5) and P(.5 < x < 2) are equal
    assert abs(below) < 0.03
    with pytest.warns(UserWarning, match="2 std"):
        init.trunc_normal_(ts.empty(3, device=device), 10.0, 1.0)


def test_constants(device):
    w = ts.empty(2, 3, device=device)
    assert init.zeros_(w).tolist() == [[0.0] * 3] * 2
    assert init.ones_(w).tolist() == [[1.0] * 3] * 2
    assert init.constant_(w, 2.5).tolist() == [[2.5] * 3] * 2
    assert init.eye_(w).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def test_dirac_passes_channels_on(device):
    layer = nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False).to(device)
    init.dirac_(layer.weight, groups=2)
    x = ts.randn(1, 4, 5, 5, device=device)
    np.testing.assert_allclose(values(layer(x)), values(x), rtol=1e-6)
    with pytest.raises(ValueError, match="divisible"):
        init.dirac_(ts.empty(3, 3, 3), groups=2)


@pytest.mark.usefixtures("needs_lapack")
@pytest.mark.filterwarnings("ignore:lapack_")  # which a card may leave to the cpu
@pytest.mark.parametrize("shape", [(5, 5), (3, 8), (8, 3), (4, 2, 3), (1, 1)])
def test_orthogonal(shape, device):
    w = init.orthogonal_(ts.empty(shape, device=device), gain=2.0)
    m = values(w).reshape(shape[0], -1)
    m = m if m.shape[0] <= m.shape[1] else m.T
    np.testing.assert_allclose(m @ m.T, 4 * np.eye(m.shape[0]), atol=1e-5)


def test_sparse(device):
    w = init.sparse_(ts.empty(10, 4, device=device), 0.35)
    assert ((values(w).reshape(10, 4) == 0).sum(0) == 4).all()


def test_generator_fixes_the_values(device):
    def drawn():
        generator = ts.Generator(device=device)
        generator.manual_seed(7)
        return init.normal_(ts.empty(4, device=device), generator=generator).tolist()

    assert drawn() == drawn()


def test_gains():
    assert init.calculate_gain("linear") == init.calculate_gain("conv2d") == init.calculate_gain("sigmoid") == 1
    assert init.calculate_gain("tanh") == 5 / 3 and init.calculate_gain("relu") == math.sqrt(2)
    assert init.calculate_gain("leaky_relu") == pytest.approx(math.sqrt(2 / 1.0001))
    with pytest.raises(ValueError, match="unknown"):
        init.calculate_gain("swirl")
    with pytest.raises(ValueError, match="number"):
        init.calculate_gain("leaky_relu", True)


def test_mistakes():
    for fill in (init.eye_, init.xavier_uniform_, init.kaiming_normal_, init.orthogonal_, init.dirac_):
        with pytest.raises(ValueError, match="dimensions"):
            fill(ts.empty(3))
    with pytest.raises(ValueError, match="fan_in"):
        init.kaiming_uniform_(ts.empty(3, 3), mode="fan")
    with pytest.warns(UserWarning, match="without elements"):
        init.kaiming_uniform_(ts.empty(0, 3))
    with pytest.warns(FutureWarning, match="normal_"):
        init.normal(ts.empty(3))
