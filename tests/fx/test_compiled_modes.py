"""Gradient modes that a compiled function enters, named tuples that it reads, and checks of distributions in it."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.distributions import Categorical, Normal, kl_divergence

NET = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(5)])
CALLS = 4


def switched(x: ts.Tensor, on: bool) -> ts.Tensor:
    with ts.set_grad_enabled(on):
        y = NET(x)
    return y + NET(x * 2)


def nested(x: ts.Tensor) -> tuple[ts.Tensor, ...]:
    with ts.no_grad():
        y = NET(x)
        with ts.enable_grad():
            z = NET(y)
        return y, z, NET(x) * 2


def by_statement(x: ts.Tensor) -> ts.Tensor:
    ts.set_grad_enabled(False)
    y = NET(x)
    ts.set_grad_enabled(True)
    return y + NET(x)


@ts.no_grad()
def without(x: ts.Tensor, scale: float = 2.0) -> ts.Tensor:
    return NET(x) * scale


@ts.enable_grad()
def recorded(x: ts.Tensor) -> ts.Tensor:
    return NET(x)


def decorated(x: ts.Tensor) -> ts.Tensor:
    return without(x) + recorded(x)


PROGRAMS: dict[str, Callable[[ts.Tensor], Any]] = {
    "switched on": lambda x: switched(x, True),
    "switched off": lambda x: switched(x, False),
    "nested": nested,
    "by statement": by_statement,
    "decorated": decorated,
}


def run(program: Callable[[ts.Tensor], Any], x: ts.Tensor) -> list[Any]:
    """Results, which of them are recorded, and the gradients that come of these."""
    NET.zero_grad()
    results = ts.utils._pytree.tree_leaves(program(x))
    of = [t.requires_grad for t in results]
    with ts.enable_grad():
        if any(of):
            sum(t.sum() for t in results if t.requires_grad).backward()
    grads = [None if p.grad is None else p.grad.tolist() for p in NET.parameters()]
    return [[t.tolist() for t in results], of, grads]


@pytest.mark.parametrize("recording", [True, False], ids=["recording", "no_grad"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_modes_are_entered_as_in_python(name: str, recording: bool) -> None:
    program = PROGRAMS[name]
    compiled = ts.compile(program)
    x = ts.randn(3, 4)
    with ts.set_grad_enabled(recording):
        for _ in range(CALLS):
            assert run(compiled, x) == run(program, x)
            ts.set_grad_enabled(recording)  # which one of the programs leaves otherwise


@pytest.mark.parametrize("name", PROGRAMS)
def test_modes_are_part_of_one_graph(name: str) -> None:
    compiled = ts.compile(PROGRAMS[name], fullgraph=True)
    x = ts.randn(3, 4)
    for _ in range(CALLS):
        assert run(compiled, x) == run(PROGRAMS[name], x)


def test_recording_that_is_switched_on_within_no_grad_is_python() -> None:
    compiled = ts.compile(lambda x: switched(x, True), fullgraph=True)
    x = ts.ones(3, 4)
    with ts.no_grad():
        for _ in range(CALLS):
            result, expected = compiled(x), switched(x, True)
            assert result.equal(expected) and result.requires_grad == expected.requires_grad
    assert compiled._compiled.plain


def test_what_a_decorated_function_reads_is_compared() -> None:
    compiled = ts.compile(decorated, fullgraph=True)
    x = ts.randn(3, 4)
    for scale in (2.0, 3.0, 2.0):
        without.__wrapped__.__defaults__ = (scale,)  # type: ignore[attr-defined]
        for _ in range(CALLS):
            assert compiled(x).equal(NET(x) * scale + NET(x))


Point = collections.namedtuple("Point", "x y")


class Pair(NamedTuple):
    first: ts.Tensor
    second: ts.Tensor


def test_fields_of_named_tuples_are_read() -> None:
    def total(x: ts.Tensor) -> Pair:
        made, pair = Point(x + 1, x * 2), Pair(first=x, second=x.sin())
        return Pair(made.x * made.y, pair.first - pair.second)

    compiled = ts.compile(total, fullgraph=True)
    x = ts.randn(4)
    for _ in range(CALLS):
        result = compiled(x)
        assert type(result) is Pair
        assert result.first.equal((x + 1) * (x * 2)) and result.second.equal(x - x.sin())


def fit(x: ts.Tensor) -> ts.Tensor:
    mean, scale = NET(x).chunk(2, -1)
    posterior, prior = Normal(mean, scale.exp()), Normal(ts.zeros_like(mean), ts.ones_like(mean))
    z = posterior.rsample()
    chosen = Categorical(logits=mean)
    terms = kl_divergence(posterior, prior) + prior.log_prob(z)
    return terms.sum(-1) + chosen.entropy() + chosen.log_prob(ts.zeros(len(x), dtype=ts.int64))


def test_distributions_are_checked_in_every_run() -> None:
    compiled = ts.compile(fit, fullgraph=True)
    for seed in range(CALLS):
        ts.manual_seed(seed)
        x = ts.randn(3, 4)
        state = ts.get_rng_state()
        expected = run(fit, x)
        ts.set_rng_state(state)
        assert run(compiled, x) == expected
    with pytest.raises(ValueError, match="to satisfy the constraint"):
        compiled(ts.full((3, 4), ts.nan))


def test_parameters_outside_raise_as_in_python() -> None:
    compiled = ts.compile(lambda x, scale: Normal(x, scale).log_prob(x * 2), fullgraph=True)
    for _ in range(CALLS):
        compiled(ts.ones(3), ts.ones(3))
    with pytest.raises(ValueError, match="Expected parameter scale"):
        compiled(ts.ones(3), -ts.ones(3))
