"""Random numbers: the stream every device shares, bit for bit where it is made of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.testing import cases
from tesserack.testing.conformance.card import Card, Record

Draw = Callable[[Any, Any], ts.Tensor]

# What follows from the bits by exact arithmetic.
EXACT: dict[str, Draw] = {
    "rand": lambda d, n: ts.rand(n, device=d),
    "rand float16": lambda d, n: ts.rand(n, device=d, dtype=ts.float16),
    "rand bfloat16": lambda d, n: ts.rand(n, device=d, dtype=ts.bfloat16),
    "rand float64": lambda d, n: ts.rand(n, device=d, dtype=ts.float64),
    "randint": lambda d, n: ts.randint(-5, 1000, (n,), device=d),
    "randint int32": lambda d, n: ts.randint(0, 7, (n,), device=d, dtype=ts.int32),
    "random_": lambda d, n: ts.empty(n, device=d, dtype=ts.int64).random_(),
    "random_ uint8": lambda d, n: ts.empty(n, device=d, dtype=ts.uint8).random_(),
    "bernoulli": lambda d, n: ts.bernoulli(ts.full((n,), 0.3, device=d)),
    "bernoulli_": lambda d, n: ts.empty(n, device=d).bernoulli_(0.7),
    "uniform_": lambda d, n: ts.empty(n, device=d).uniform_(),
    "randperm": lambda d, n: ts.randperm(n, device=d),
    "dropout": lambda d, n: ts.dropout(ts.ones(n, device=d), 0.4, True),
    "rand_like": lambda d, n: ts.rand_like(ts.empty(n, device=d)),
}
# What goes through logarithms and the like, which may be rounded otherwise.
CLOSE: dict[str, Draw] = {
    "randn": lambda d, n: ts.randn(n, device=d),
    "randn float64": lambda d, n: ts.randn(n, device=d, dtype=ts.float64),
    "normal_": lambda d, n: ts.empty(n, device=d).normal_(2.0, 3.0),
    "exponential_": lambda d, n: ts.empty(n, device=d).exponential_(0.5),
    "uniform_ of an interval": lambda d, n: ts.empty(n, device=d).uniform_(-3, 11),
}
SIZES = (1, 2, 5, 1000, 65_537)


def needs(name: str, card: Card) -> None:
    """Skip draws of dtypes the device lacks; those without a dtype in their name draw its own real one, or int64."""
    dtype = name.split()[-1] if name.split()[-1] in cases.DTYPES else card.real
    card.needs("int64" if name in ("randint", "random_", "randperm") else dtype)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("name", EXACT)
def test_bit_equal_with_cpu(name: str, count: int, card: Card, record: Record) -> None:
    """The same seed gives the same bits as on the cpu, draw after draw."""
    record.case(op=name.split()[0], dtype="", direction="random")
    needs(name, card)
    for seed in (0, 1234567890123):
        drawn = []
        for where in (card.device, "cpu"):
            ts.manual_seed(seed)
            drawn.append([EXACT[name](where, count).cpu() for _ in range(3)])
        for number, (found, expected) in enumerate(zip(*drawn, strict=True)):
            same = cases.values(found) == cases.values(expected)
            if not same.all():
                at = int(np.argmin(same))
                pytest.fail(
                    f"{name} on {card.name}, seed {seed}, draw {number}: element {at} of {count} is "
                    f"{found[at].item()}, on the cpu {expected[at].item()} ({int((~same).sum())} differ): the "
                    f"random_bits kernel does not give the documented Philox stream",
                    pytrace=False,
                )


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("name", CLOSE)
def test_close_to_cpu(name: str, count: int, card: Card) -> None:
    """Normal and exponential numbers come from the same bits, but for rounding."""
    needs(name, card)
    card.needs("float32")  # in which halves, too, go through logarithms
    drawn = []
    for where in (card.device, "cpu"):
        ts.manual_seed(99)
        drawn.append([cases.values(CLOSE[name](where, count)) for _ in range(2)])
    for found, expected in zip(*drawn, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=f"{name} on {card.name}")


@pytest.mark.parametrize("bits", (31, 32, 33, 34, 35, 63))
def test_counters_are_wide(bits: int, card: Card) -> None:
    """Far along the stream: where its words, and its blocks of four, pass 2^32."""
    begin = (1 << bits) - 8
    for dtype in dict.fromkeys((card.real, "float64")):
        if not card.supports(dtype):
            continue
        drawn = []
        for where in (card.device, "cpu"):
            generator: Any = ts.Generator(where).manual_seed(11)
            generator._set_position(11, begin)
            drawn.append(ts.rand(37, dtype=getattr(ts, dtype), device=where, generator=generator).tolist())
        at = next((k for k, (a, b) in enumerate(zip(*drawn, strict=True)) if a != b), None)
        if at is not None:
            pytest.fail(
                f"random_bits for {dtype} on {card.name}, from word 2^{bits} - 8 on: element {at} of 37 is "
                f"{drawn[0][at]}, on the cpu {drawn[1][at]}: its counter has fewer than 64 bits",
                pytrace=False,
            )


@pytest.mark.parametrize("first", (0, 1, 3, 4, 1023))
def test_streams_continue(first: int, card: Card) -> None:
    """A draw begins where the one before ended, on the device as on the cpu."""
    drawn = []
    for where in (card.device, "cpu"):
        ts.manual_seed(5)
        if first:
            ts.rand(first, device=where)
        drawn.append(ts.rand(11, device=where).tolist())
    assert drawn[0] == drawn[1]


def test_layout_does_not_matter(card: Card) -> None:
    """Strided targets take the same numbers."""
    ts.manual_seed(8)
    plain = ts.empty(6, 4, device=card.device).uniform_()
    for target in (ts.empty(4, 6, device=card.device).t(), ts.empty(6, 8, device=card.device)[:, ::2]):
        ts.manual_seed(8)
        assert target.uniform_().tolist() == plain.tolist()


def test_generators_and_states(card: Card) -> None:
    """Own generators, saved states, and states of other devices."""
    one, two = (ts.Generator(card.device).manual_seed(3) for _ in range(2))
    first = ts.rand(5, device=card.device, generator=one)
    ts.rand(5, device=card.device)
    assert ts.rand(5, device=card.device, generator=two).tolist() == first.tolist()
    state = ts.get_rng_state(card.device)
    before = ts.rand(7, device=card.device).tolist()
    ts.set_rng_state(state, card.device)
    assert ts.rand(7, device=card.device).tolist() == before
    ts.manual_seed(1)
    assert ts.rand(7, device=card.device).tolist() != before


def test_distributions(card: Card) -> None:
    """Means, spreads and frequencies of many numbers; a bound six deviations wide, and the seed is fixed."""
    count = 100_000
    uniform = cases.values(ts.rand(count, device=card.device))
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 6 * np.sqrt(1 / 12 / count)
    normal = cases.values(ts.randn(count, device=card.device))
    assert abs(normal.mean()) < 6 / np.sqrt(count) and abs(normal.std() - 1) < 6 / np.sqrt(2 * count)
    assert abs(np.corrcoef(normal[:-1], normal[1:])[0, 1]) < 6 / np.sqrt(count)
    dice = np.bincount(cases.values(ts.randint(0, 6, (count,), device=card.device)), minlength=6)
    assert np.abs(dice - count / 6).max() < 6 * np.sqrt(count * 5 / 36)
    assert sorted(ts.randperm(1000, device=card.device).tolist()) == [*range(1000)]
