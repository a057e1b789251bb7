"""Random numbers within vmap: which entries get numbers of their own, of which generator, where none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
import tesserack.nn.functional as F

Draw = Callable[[Any, Any], Any]
# name: draws of an entry, by a generator or without one
FACTORIES: dict[str, Draw] = {
    "randn": lambda x, g: ts.randn((2, 3), generator=g),
    "rand": lambda x, g: ts.rand(2, 3, generator=g),
    "randint": lambda x, g: ts.randint(5, 1000, (2, 3), generator=g),
    "randint up to": lambda x, g: ts.randint(1000, size=(2, 3), generator=g),
    "normal": lambda x, g: ts.normal(0.0, 1.0, (2, 3), generator=g),
}
BY_VALUES: dict[str, Draw] = {
    "bernoulli": lambda x, g: ts.bernoulli(x, generator=g),
    "normal": lambda x, g: ts.normal(x, 1.0, generator=g),
    "normal, std": lambda x, g: ts.normal(0.0, x, generator=g),
    "poisson": lambda x, g: ts.poisson(x * 20, generator=g),
    "binomial": lambda x, g: ts.binomial(ts.full((40,), 9.0), x, generator=g),
    "multinomial": lambda x, g: ts.multinomial(x, 7, generator=g),
    "gamma": lambda x, g: ts._standard_gamma(x, generator=g),
}
FILLS: dict[str, Draw] = {
    name: lambda x, g, name=name: getattr(x, name)(*((0.5,) if name == "geometric_" else ()), generator=g)
    for name in ("normal_", "uniform_", "random_", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_")
}  # fmt: skip
X = ts.linspace(0.2, 0.8, 160).reshape(4, 40)


def _seeded(use: bool) -> Any:
    ts.manual_seed(7)
    return ts.Generator().manual_seed(7) if use else None


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("draw", FACTORIES.values(), ids=FACTORIES)
def test_new_tensors_of_every_entry_are_drawn_in_one_call(draw: Draw, own: bool) -> None:
    g = _seeded(own)
    found = ts.vmap(lambda x: draw(x, g), randomness="different")(X)
    assert found.shape == (4, 2, 3) and len({str(row.tolist()) for row in found}) == 4
    g = _seeded(own)
    assert ts.equal(ts.vmap(lambda x: draw(x, g), randomness="same")(X), draw(X, _seeded(own)).expand(4, 2, 3))
    g = _seeded(own)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        ts.vmap(lambda x: draw(x, g))(X)


def test_as_many_numbers_as_a_larger_tensor() -> None:
    ts.manual_seed(3)
    found = ts.vmap(lambda x: ts.randn(5) + 0 * x, randomness="different")(ts.zeros(4))
    nested = ts.vmap(ts.vmap(lambda x: ts.rand(2), randomness="different"), randomness="different")(ts.zeros(3, 4))
    ts.manual_seed(3)
    assert ts.equal(found, ts.randn(4, 5))
    assert nested.shape == (3, 4, 2) and nested.unique().numel() == 24
    mixed = ts.vmap(ts.vmap(lambda x: ts.rand(2), randomness="same"), randomness="different")(ts.zeros(3, 4))
    assert mixed.unique().numel() == 6 and ts.equal(mixed[:, 0], mixed[:, 3])


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("draw", BY_VALUES.values(), ids=BY_VALUES)
def test_draws_by_values(draw: Draw, own: bool) -> None:
    g = _seeded(own)
    found = ts.vmap(lambda x: draw(x, g), randomness="different")(X)
    assert ts.equal(found, draw(X, _seeded(own)))
    g = _seeded(own)
    shared = ts.vmap(lambda _: draw(X[0], g), randomness="different")(X)
    assert ts.equal(shared, draw(X[0].expand(4, 40), _seeded(own)))
    with pytest.raises(RuntimeError, match="same randomness"):
        ts.vmap(lambda x: draw(x, g), randomness="same")(X)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        ts.vmap(lambda x: draw(x, g))(X)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
def test_arguments_are_filled(fill: Draw, own: bool) -> None:
    g = _seeded(own)
    x = X.clone()
    assert ts.equal(ts.vmap(lambda row: fill(row, g), randomness="different")(x), fill(X.clone(), _seeded(own)))
    assert ts.equal(x, fill(X.clone(), _seeded(own)))
    g = _seeded(own)
    x = X.clone()
    found = ts.vmap(lambda row: fill(row, g), randomness="same")(x)
    assert ts.equal(found, x) and ts.equal(found, fill(X[0].clone(), _seeded(own)).expand(4, 40))
    with pytest.raises(RuntimeError):
        ts.vmap(lambda row, shared: fill(shared, g) * row, (0, None), randomness="different")(x, X[0].clone())


def test_dropout() -> None:
    x = ts.ones(4, 60)
    for drop in (F.dropout, lambda x: F.alpha_dropout(x, training=True), lambda x: F.dropout(x.clone(), inplace=True)):
        found = ts.vmap(lambda row, drop=drop: drop(row), randomness="different")(x)
        assert len({str(row.tolist()) for row in found}) == 4
        found = ts.vmap(lambda row, drop=drop: drop(row), randomness="same")(x)
        assert ts.equal(found, found[:1].expand(4, 60)) and len(found[0].unique()) == 2
        with pytest.raises(RuntimeError, match="randomness error mode"):
            ts.vmap(drop)(x)
    assert ts.equal(ts.vmap(lambda row: F.dropout(row, training=False))(x), x)


def test_numbers_after_a_write_to_an_argument() -> None:
    x = ts.zeros(3, 4)
    found = ts.vmap(lambda row: row.add_(1) + ts.rand(4), randomness="different")(x)
    assert x.tolist() == [[1] * 4] * 3 and found.unique().numel() == 12


def test_jacfwd_refuses_and_takes_draws() -> None:
    with pytest.raises(RuntimeError, match="randomness error mode"):
        ts.func.jacfwd(lambda x: x * ts.rand(3))(ts.ones(3))
    ts.manual_seed(2)
    found = ts.func.jacfwd(lambda x: x * ts.rand(3), randomness="same")(ts.ones(3))
    ts.manual_seed(2)
    assert ts.equal(found, ts.diag(ts.rand(3)))
