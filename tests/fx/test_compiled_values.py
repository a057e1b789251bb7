"""Values that compiled functions take, return and hold on to."""

from __future__ import annotations

import gc
import weakref

import pytest
import tesserack as ts
from tesserack.jit._compile.compiled import config

X = ts.tensor([[1.0, -2.0], [3.0, 4.0]])


@pytest.fixture(autouse=True)
def _small_programs_too(monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)


def _holding_itself():
    items: list = []
    items[:] = [items, 1]
    return items


def test_values_that_hold_themselves():
    items, table = _holding_itself(), {}
    table["own"] = table

    def joined(x):
        made = [x * 2]
        made.append(made)
        return made

    cases = {
        "a global": (lambda x: (items, x * 2), ()),
        "a table": (lambda x: {"a": x + 1, "b": table}, ()),
        "an argument": (lambda x, given: x + len(given), (items,)),
        "a table given": (lambda x, given: x + len(given), (table,)),
        "made": (joined, ()),
    }
    for function, more in cases.values():
        compiled = ts.compile(function)
        for _ in range(4):
            found, expected = compiled(X, *more), function(X, *more)
            if isinstance(found, list):
                assert found[1] is found and ts.equal(found[0], expected[0])
            elif isinstance(found, dict):
                assert found["b"] is table and ts.equal(found["a"], expected["a"])
            elif isinstance(found, tuple):
                assert found[0] is items and ts.equal(found[1], expected[1])
            else:
                assert ts.equal(found, expected)


@pytest.mark.parametrize("options", [{}, {"backend": "eager"}])
def test_inputs_are_not_held(options):
    compiled = ts.compile(lambda x: (x * 2).sum(), **options)
    seen = []
    for size in range(3, 9):
        x = ts.rand(size)
        seen.append(weakref.ref(x))
        compiled(x)
    del x
    gc.collect()
    assert [held() for held in seen] == [None] * 6
