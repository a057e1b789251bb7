"""What a compiled function was given, and has computed, goes when the program lets it go."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import Any

import pytest
import tesserack as ts

from tests.fx.compiled import Backend


def adds(x: ts.Tensor, seen: list[Any]) -> ts.Tensor:
    y = x * 2 + x
    seen.append(weakref.ref(y))
    return y.sum()


def prints(x: ts.Tensor, seen: list[Any]) -> ts.Tensor:
    y = x * 2
    seen.append(weakref.ref(y))
    print(end="")
    return y.sum()


def raises(x: ts.Tensor, seen: list[Any]) -> ts.Tensor:
    y = x * 2
    seen.append(weakref.ref(y))
    raise ValueError("of the program")


def branches(x: ts.Tensor, seen: list[Any]) -> ts.Tensor:
    seen.append(weakref.ref(x))
    return x * 2 if x.sum() > 0 else x


@pytest.fixture
def _uncollected():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize("function", [adds, prints, raises, branches], ids=lambda f: f.__name__)
@pytest.mark.parametrize("given", [{}, {"backend": Backend}, {"fullgraph": True}], ids=["own", "brought", "whole"])
@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
def test_tensors_of_a_run_go_without_a_collection(function: Any, given: dict[str, Any], recorded: bool) -> None:
    options = {key: value() if key == "backend" else value for key, value in given.items()}
    held: list[Any] = []
    compiled = ts.compile(lambda x: function(x, held), **options)
    for _ in range(3):
        x = ts.rand(4, requires_grad=recorded)
        ref = weakref.ref(x)
        with contextlib.suppress(ValueError, RuntimeError):
            compiled(x)
        del x
        assert ref() is None
    assert all(ref() is None for ref in held)


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize("given", [{}, {"backend": Backend}], ids=["own", "brought"])
def test_tensors_of_a_captured_run_go_without_a_collection(given: dict[str, Any]) -> None:
    options = {key: value() for key, value in given.items()}
    compiled = ts.compile(lambda x: (x * 2 + x).sin().exp().tanh().abs().sqrt().log().neg().sum(), **options)
    for recorded in (False, True):
        x = ts.rand(4, requires_grad=recorded)
        ref = weakref.ref(x)
        result = compiled(x)
        if recorded:
            result.backward()
        del x, result
        assert ref() is None
    assert compiled._compiled._count
