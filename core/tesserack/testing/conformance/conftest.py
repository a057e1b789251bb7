"""Fixtures of the conformance tests."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tesserack as ts
from tesserack.testing.conformance.card import Card, Record, describe
from tesserack.testing.conformance.selection import properties_of

for _module in ("values", "gradients"):
    pytest.register_assert_rewrite(f"tesserack.testing.conformance.{_module}")


@pytest.fixture(scope="session")
def card(tesserack_device: ts.device) -> Card:
    """The device under test and what it declares."""
    return describe(tesserack_device)


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """Where a test writes down what the report should say."""
    return Record(properties_of(request.node))


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether every dtype is tried in every layout."""
    return bool(request.config.getoption("--tesserack-thorough"))


@pytest.fixture(scope="session")
def quick(request: pytest.FixtureRequest) -> bool:
    """Whether a sample of dtypes and layouts will do."""
    return bool(request.config.getoption("--tesserack-quick"))


@pytest.fixture(autouse=True)
def _real_numbers(card: Card) -> Iterator[None]:
    """Where a test names no dtype, the device's own real numbers."""
    was = ts.get_default_dtype()
    ts.set_default_dtype(getattr(ts, card.real))
    yield
    ts.set_default_dtype(was)


@pytest.fixture(autouse=True)
def _fresh_state(request: pytest.FixtureRequest) -> Iterator[None]:
    """The same seed for each test, no word from NumPy about infinities; what ran on the cpu instead is counted."""
    ts.manual_seed(0)
    mode = ts.backends.get_fallback()
    ts.backends.set_fallback("allow")
    ts.backends.reset_fallbacks()
    with np.errstate(all="ignore"):
        yield
    fallbacks = ts.backends.fallbacks()
    ts.backends.set_fallback(mode)
    if fallbacks:
        properties_of(request.node)["fallbacks"] = fallbacks
    assert ts.is_grad_enabled(), "a test left gradients switched off"
    problem = arithmetic_problem()
    assert problem is None, f"after this test the processor {problem}: a kernel or copy changed the mode and left it so"


def arithmetic_problem() -> str | None:
    """How this thread's floating-point arithmetic differs from what every program expects, if it does.

    >>> arithmetic_problem()
    """
    tiny, one = np.array([2.0**-1060]), np.array([1.0])  # arrays: nothing here may be folded beforehand
    with np.errstate(all="ignore"):
        if (tiny * 0.5)[0] == 0 or (tiny * 2.0**40)[0] == 0:
            return "flushes denormal numbers to zero"
        if (one + 2.0**-60)[0] != 1 or (-one - 2.0**-60)[0] != -1 or (one - 2.0**-60)[0] != 1:
            return "no longer rounds to nearest"
    return None
