"""Calls that a graph is at hand for, which go there without a word of Python, and those that must not."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import tesserack as ts
import tesserack.nn.functional as F
from tesserack import compiler, nn
from tesserack.jit._compile.compiled import Compiled

SCALE = 2.0


def chain(x: ts.Tensor, plus: float = 1.0) -> ts.Tensor:
    y = ((x * SCALE + plus).relu() * x - 0.5).abs()
    return ((y + x) * 0.25).sigmoid().tanh()


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that the package looks at."""
    calls: list[Any] = []
    run = Compiled.run

    def seen(self: Compiled, args: Any, kwargs: Any) -> Any:
        calls.append((args, kwargs))
        return run(self, args, kwargs)

    monkeypatch.setattr(Compiled, "run", seen)
    return calls


def test_calls_go_to_the_graph_and_changes_are_seen(looked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, x = ts.compile(chain), ts.randn(64)
    for _ in range(3):
        compiled(x, plus=0.5)
    looked.clear()
    y = ts.randn(64)
    assert compiled(y, plus=0.5).equal(chain(y, plus=0.5)) and not looked
    assert compiled(y).equal(chain(y)) and len(looked) == 1  # other arguments
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert compiled(y, plus=0.5).equal(chain(y, plus=0.5)) and len(looked) == 2
    looked.clear()
    with compiler.set_stance("force_eager"):
        compiled(x)
    assert looked
    looked.clear()
    compiler.reset()
    compiled(x)
    assert looked and compiled._compiled._count == 1


def test_modules_and_gradients(looked: list[Any]) -> None:
    net = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU()) for _ in range(4)])
    compiled, x = ts.compile(net), ts.randn(3, 4)
    for _ in range(5):
        compiled(x).sum().backward()
        net.zero_grad()
    looked.clear()
    compiled(x).sum().backward()
    grads = [p.grad for p in net.parameters()]
    assert not looked
    net.zero_grad()
    net(x).sum().backward()
    again = [p.grad for p in net.parameters()]
    assert all(a is not None and b is not None and a.equal(b) for a, b in zip(grads, again, strict=True))
    net[0][2] = nn.Tanh()
    assert compiled(x).equal(net(x)) and looked


def test_errors_are_those_of_python(looked: list[Any]) -> None:
    table = ts.randn(5, 4)

    def rows(k: ts.Tensor) -> ts.Tensor:
        y = F.embedding(k, table).relu()
        return ((y + 1).tanh() * 2 - 1).abs().sqrt().sigmoid()

    compiled = ts.compile(rows)
    good, bad = ts.tensor([0, 4]), ts.tensor([0, 7])
    for _ in range(3):
        compiled(good)
    looked.clear()
    with pytest.raises(IndexError) as told:
        rows(bad)
    with pytest.raises(IndexError) as same:
        compiled(bad)
    assert str(same.value) == str(told.value) and looked
    assert compiled(good).equal(rows(good))


def test_several_results_and_plain_functions(looked: list[Any]) -> None:
    both = ts.compile(lambda x: (chain(x), chain(x) + 1))
    few = ts.compile(lambda x: x + 1)
    x = ts.randn(8)
    for _ in range(4):
        first, second = both(x)
        few(x)
    assert first.equal(chain(x)) and second.equal(chain(x) + 1)
    looked.clear()
    assert few(x).equal(x + 1) and not looked


def test_what_is_compiled_is_let_go() -> None:
    def made() -> tuple[weakref.ref[Any], weakref.ref[Any]]:
        weight = nn.Parameter(ts.ones(4))
        compiled = ts.compile(lambda x: chain(x * weight))
        for _ in range(3):
            compiled(ts.ones(4))
        return weakref.ref(compiled._compiled), weakref.ref(weight)

    gone = made()
    gc.collect()
    assert gone[0]() is None and gone[1]() is None
