"""PyTorch's random streams, bit by bit."""

from __future__ import annotations

import math
import textwrap
from fractions import Fraction

import numpy as np
import pytest
import tesserack as ts

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def torch_streams():
    from tesserack.ops import torch_random

    torch_random.switch(True)
    yield
    torch_random.switch(False)


def layer(make):
    """All that the layer starts from."""
    return lambda t: t.cat([p.flatten() for p in make(t.nn).parameters()])


def epochs(t, count, **options):
    """What shuffled loaders give in some epochs."""
    loader = t.utils.data.DataLoader(t.arange(20), batch_size=3, shuffle=True, **options)
    return t.cat([batch for _ in range(count) for batch in loader])


FLOATS = ("float32", "float64", "float16", "bfloat16")
DRAWS = {
    **{f"rand {d}": lambda t, d=d: t.rand(50, dtype=getattr(t, d)) for d in FLOATS},
    **{f"randn {d}": lambda t, d=d: t.randn(333, dtype=getattr(t, d)) for d in FLOATS},
    **{f"normal_ {d}": lambda t, d=d: t.empty(1000, dtype=getattr(t, d)).normal_(0.3, 0.7) for d in FLOATS},
    **{f"few normal {d}": lambda t, d=d: t.empty(7, dtype=getattr(t, d)).normal_(0.3, 0.7) for d in FLOATS},
    **{f"uniform_ {d}": lambda t, d=d: t.empty(1000, dtype=getattr(t, d)).uniform_(-0.3, 0.7) for d in FLOATS},
    **{f"many normal {d}": lambda t, d=d: t.randn(100_005, dtype=getattr(t, d)) for d in ("float32", "bfloat16")},
    "many normal float64": lambda t: t.randn(100_005, dtype=t.float64),
    **{
        f"many normal_ of {m} and {d}": lambda t, m=m, d=d: t.empty(70_003, dtype=t.float64).normal_(m, d)
        for m, d in ((0.3, 0.7), (0.0, 0.7), (-2.5, 1.0), (0.0, 2.0))
    },
    "many uniform": lambda t: t.rand(100_005),
    "many uniform_": lambda t: t.empty(100_005).uniform_(-0.3, 0.7),
    "many uneven uniform_": lambda t: t.empty(100_005).uniform_(-0.07, 0.11),
    "many symmetric uniform_": lambda t: t.empty(100_005).uniform_(-0.3, 0.3),
    "many randint": lambda t: t.randint(0, 10, (100_005,)),
    "many exponential_": lambda t: t.empty(100_005).exponential_(),
    "rand complex64": lambda t: t.rand(30, dtype=t.complex64),
    "randn complex64": lambda t: t.randn(30, dtype=t.complex64),
    "randn of nothing": lambda t: t.randn(0),
    "randint": lambda t: t.randint(0, 10, (50,)),
    "randint wide": lambda t: t.randint(-5, 2**40, (50,)),
    "randint uint8": lambda t: t.randint(5, 100, (50,), dtype=t.uint8),
    "randint float32": lambda t: t.randint(5, 100, (50,), dtype=t.float32),
    "randperm": lambda t: t.randperm(100),
    "randperm of nothing": lambda t: t.randperm(0),
    "transposed uniform_": lambda t: t.empty(20, 30).t().uniform_(),
    "transposed normal_": lambda t: t.empty(20, 30).t().normal_(1, 2),
    "sliced normal_": lambda t: t.empty(20, 30)[:, 3:8].normal_(),
    "channels last": lambda t: t.empty(2, 3, 4, 5).to(memory_format=t.channels_last).uniform_(),
    "bernoulli": lambda t: t.bernoulli(t.linspace(0, 1, 50)),
    "bernoulli float64": lambda t: t.bernoulli(t.linspace(0, 1, 50, dtype=t.float64)),
    "bernoulli_": lambda t: t.empty(50).bernoulli_(0.3),
    "bernoulli_ by tensor": lambda t: t.empty(50, 4).t().bernoulli_(t.linspace(0, 1, 50)),
    "exponential_": lambda t: t.empty(100).exponential_(2),
    "exponential_ float16": lambda t: t.empty(100, dtype=t.float16).exponential_(2),
    "cauchy_": lambda t: t.empty(100).cauchy_(1, 2),
    "geometric_": lambda t: t.empty(100).geometric_(0.3),
    "log_normal_": lambda t: t.empty(100).log_normal_(0.1, 0.4),
    **{
        f"random_ {d}": lambda t, d=d: t.empty(100, dtype=getattr(t, d)).random_()
        for d in ("int64", "int32", "uint8", "bool", *FLOATS)
    },
    "random_ to": lambda t: t.empty(100, dtype=t.int64).random_(50),
    "random_ from": lambda t: t.empty(100, dtype=t.int64).random_(-50, 70),
    "multinomial of one": lambda t: t.multinomial(t.tensor([0.1, 0.2, 0.3, 0.4]), 1),
    "multinomial": lambda t: t.multinomial(t.tensor([0.1, 0.2, 0.3, 0.4]), 3),
    "multinomial with replacement": lambda t: t.multinomial(t.tensor([[0.1, 0.2, 0.7], [4.0, 3.0, 2.0]]), 20, True),
    "rand_like": lambda t: t.rand_like(t.empty(3, 4)),
    "randn_like": lambda t: t.randn_like(t.empty(30, 4).t()),
    "randint_like": lambda t: t.randint_like(t.empty(30, 4), -3, 7),
    "normal by means": lambda t: t.normal(t.arange(20.0), 2.0),
    "normal by spreads": lambda t: t.normal(0.0, t.arange(20.0)),
    "normal by both": lambda t: t.normal(t.arange(20.0), t.ones(3, 1)),
    "normal of a size": lambda t: t.normal(1.0, 2.0, (40,)),
    "rand out": lambda t: t.rand(40, out=t.empty(0)),
    "own generator": lambda t: t.rand(5, generator=t.Generator().manual_seed(7)),
    "dropout": lambda t: t.nn.functional.dropout(t.ones(100), 0.3),
    "dropout1d": lambda t: t.nn.functional.dropout1d(t.ones(10, 7), 0.3),
    "dropout2d": lambda t: t.nn.functional.dropout2d(t.ones(4, 10, 2, 2), 0.3),
    "alpha_dropout": lambda t: (t.nn.functional.alpha_dropout(t.ones(100), 0.3, True) * 1000).round(),
    "trunc_normal_": lambda t: t.nn.init.trunc_normal_(t.empty(20, 30), std=0.02),
    "trunc_normal_ of a tail": lambda t: t.nn.init.trunc_normal_(t.empty(20, 30), 0.0, 1.0, 1.5, 1.8),
    "kaiming_normal_": lambda t: t.nn.init.kaiming_normal_(t.empty(20, 30)),
    "sparse_": lambda t: t.nn.init.sparse_(t.empty(20, 30), 0.2),
    "Linear": layer(lambda nn: nn.Linear(5, 6)),
    "LSTM": layer(lambda nn: nn.LSTM(4, 5)),
    "Transformer": layer(lambda nn: nn.TransformerEncoderLayer(8, 2, 16)),
    "loader": lambda t: epochs(t, 2),
    "loader with a generator": lambda t: epochs(t, 3, generator=t.Generator().manual_seed(7)),
    "some orders of a generator": lambda t: t.cat(
        [
            t.tensor([*t.utils.data.RandomSampler(range(5), num_samples=n, generator=g)])
            for g in [t.Generator().manual_seed(3)]
            for n in (5, 3, 10, 12)
        ]
    ),
    "loader with a worker": lambda t: epochs(t, 2, num_workers=1),
    "loader with one that stays": lambda t: epochs(t, 3, num_workers=1, persistent_workers=True),
    "random_split": lambda t: t.tensor([*t.utils.data.random_split(range(20), [15, 5])[0].indices]),
    "Normal": lambda t: t.distributions.Normal(t.zeros(3), 1.0).sample((20,)),
    "Categorical": lambda t: t.distributions.Categorical(t.ones(5)).sample((20,)),
    **{
        f"gamma {d}": lambda t, d=d: t._standard_gamma(t.arange(1, 60, dtype=getattr(t, d)) / 4)
        for d in ("float32", "float64")
    },
    "Gamma": lambda t: t.distributions.Gamma(t.tensor([0.3, 5.0]), t.tensor([2.0, 0.5])).sample((20,)),
    "Beta": lambda t: t.distributions.Beta(t.tensor([0.3, 5.0]), t.tensor([2.0, 0.5])).sample((20,)),
    "Dirichlet": lambda t: t.distributions.Dirichlet(t.tensor([0.02, 0.3, 5.0, 40.0])).sample((20,)),
    "Dirichlet float64": lambda t: t.distributions.Dirichlet(t.tensor([0.3, 5.0]).double()).sample((20,)),
    "StudentT": lambda t: t.distributions.StudentT(t.tensor([3.0, 20.0])).sample((20,)),
    "VonMises": lambda t: t.distributions.VonMises(t.tensor([0.0, 2.0]), t.tensor([0.3, 9.0])).sample((20,)),
    **{
        f"poisson {d}": lambda t, d=d: t.poisson((t.arange(200, dtype=getattr(t, d)) / 4).reshape(10, 20))
        for d in FLOATS
    },
    "poisson of much": lambda t: t.poisson(t.full((200,), 1e4)),
    "NegativeBinomial": lambda t: t.distributions.NegativeBinomial(t.tensor([3.0, 40.0]), 0.7).sample((20,)),
    **{
        f"binomial of {n}": lambda t, n=n: t.binomial(t.full((99,), float(n)), t.arange(99.0) / 98)
        for n in (0, 3, 25, 400, 20000)
    },
    "binomial float64": lambda t: t.binomial(t.full((99,), 70.0).double(), t.arange(99).double() / 98),
    "Binomial": lambda t: t.distributions.Binomial(30, t.tensor([0.1, 0.8])).sample((20,)),
    "rrelu float64": lambda t: t.nn.functional.rrelu(t.arange(-20, 20).double(), 0.1, 0.4, True),
    "rrelu": lambda t: t.nn.functional.rrelu((t.arange(-20, 20) / 7).reshape(5, 8), 0.1, 0.4, True),
}


def drawn(library, draw, seed):
    library.manual_seed(seed)
    values = draw(library).detach()
    values = values.double() if values.is_floating_point() else values
    return values.contiguous().numpy().copy(), library.rand(1).item(), library.randn(3).tolist()


@pytest.mark.parametrize("name", DRAWS)
def test_draws_and_what_follows_them_are_pytorchs(name):
    for seed in (11, 2**40 + 3):
        ours, theirs = drawn(ts, DRAWS[name], seed), drawn(torch, DRAWS[name], seed)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1:] == theirs[1:]


def test_a_normal_number_left_over_is_part_of_the_state():
    for library in (ts, torch):
        library.manual_seed(3)
        library.randn(1)
    library_states = [library.get_rng_state() for library in (ts, torch)]
    first = [library.randn(5).tolist() for library in (ts, torch)]
    ts.set_rng_state(library_states[0])
    torch.set_rng_state(library_states[1])
    assert ts.randn(5).tolist() == first[0] == first[1] == torch.randn(5).tolist()


def test_gradients_of_what_was_drawn():
    x = ts.ones(40, requires_grad=True)
    ts.manual_seed(0)
    out = ts.nn.functional.dropout(x, 0.4)
    out.sum().backward()
    assert ts.equal(x.grad, out.detach())
    leaf = ts.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf.normal_()


def test_gradients_of_gamma_variates():
    results = []
    for library in (ts, torch):
        library.manual_seed(4)
        alpha = library.linspace(0.2, 40, 30, dtype=library.float64).requires_grad_()
        library.distributions.Gamma(alpha, 1.0).rsample().sum().backward()
        results.append(alpha.grad.numpy())
    np.testing.assert_allclose(*results, rtol=2e-3)
    alpha = ts.ones(3, 2, requires_grad=True)
    drawn = ts.distributions.Dirichlet(alpha).rsample()
    drawn[:, 0].sum().backward()
    assert bool((alpha.grad[:, 0] > 0).all()) and bool((alpha.grad[:, 1] < 0).all())


def test_variates_of_impossible_parameters():
    shapes = ts.tensor([-5.0, -0.001, float("nan"), float("inf"), 0.0])
    assert ts._standard_gamma(shapes).isnan().tolist() == [True, True, True, False, False]
    assert ts.poisson(ts.tensor([0.0, float("inf")])).tolist() == [0.0, float("inf")]
    assert ts.binomial(ts.tensor([float("inf")]), ts.tensor([0.3])).tolist() == [float("inf")]


def test_arguments_are_checked_as_ever():
    with pytest.raises(RuntimeError, match="std >= 0"):
        ts.empty(3).normal_(0, -1)
    with pytest.raises(RuntimeError, match="less than"):
        ts.randint(5, 5, (2,))
    assert ts.rand(3, device="meta").is_meta
    assert ts.nn.functional.rrelu(ts.ones(3, device="meta"), training=True).is_meta
    with pytest.raises(RuntimeError, match="floating"):
        ts._standard_gamma(ts.ones(3, dtype=ts.int64))
    with pytest.raises(RuntimeError, match="floating"):
        ts._sample_dirichlet(ts.ones(3, dtype=ts.int64))


def test_it_is_an_option_of_run(program):
    source = (
        "import torch\ntorch.manual_seed(0)\nprint(torch.rand(2).tolist(), torch.nn.Linear(2, 2).weight.tolist())\n"
    )
    torch.manual_seed(0)
    expected = f"{torch.rand(2).tolist()} {torch.nn.Linear(2, 2).weight.tolist()}"
    assert program.run(source, "--torch-random") == [expected]
    assert program.run(source) != [expected]


def test_it_ends_with_the_hook():
    source = """
        import tesserack as ts
        ts.manual_seed(0)
        own = ts.rand(3).tolist()
        with ts.compat.enable(random="torch"):
            ts.manual_seed(0)
            assert ts.rand(3).tolist() != own
        ts.manual_seed(0)
        assert ts.rand(3).tolist() == own
        try:
            ts.compat.enable(random="numpy")
        except ValueError as error:
            print(error)
    """
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, check=True)
    assert "'numpy'" in done.stdout


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (4, 2, 3)])
def test_orthogonal_matrices_are_pytorchs(shape):
    torch.manual_seed(3)
    ts.manual_seed(3)
    theirs, ours = torch.nn.init.orthogonal_(torch.empty(shape), 2.0), ts.nn.init.orthogonal_(ts.empty(shape), 2.0)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=2e-6)


def test_products_and_sums_are_rounded_once():
    """Also where no more than one operation needs to be."""
    from tesserack.ops.torch_random import _normal

    random = np.random.default_rng(3)
    a = np.concatenate([random.normal(size=2000) * 8, random.normal(size=200) * 1e-8, [0.0, -0.0]])
    for b, c in ((0.7, 0.3), (-1.3, 1e-9), (1e-3, 5.0), (3.3, -3.3), (0.7, 0.0), (1.0, 0.3), (-1.0, 0.3), (2.0, 0.1)):
        exact = [float(Fraction(x) * Fraction(b) + Fraction(c)) for x in a.tolist()]
        assert _normal.fma64(a, b, c).tolist() == exact, (b, c)
    assert not np.signbit(_normal.fma64(np.array([-0.0]), 1.0, 0.0)).any()


def test_loops_with_other_bits_than_the_c_librarys_are_not_taken():
    from tesserack.ops.torch_random import _normal

    def rough(x):
        bits = np.log(x).view(np.int64)
        return (bits + (np.arange(x.size) % 1000 == 0).reshape(x.shape)).view(np.float64)

    sure = _normal._each(math.log)
    assert not _normal._same(rough, sure, 1.0) and _normal._same(sure, sure, 1.0)
    angles = np.linspace(0, 6.28, 32).reshape(4, 8)
    for loop, exact in zip(_normal._loops(), (math.log, math.sin, math.cos), strict=True):
        assert loop(angles + 0.1).tolist() == [[exact(x) for x in row] for row in (angles + 0.1).tolist()]
