"""Compiled functions that go by values of tensors, or by sizes that follow from them: a graph is of these values."""

from __future__ import annotations

import pytest
import tesserack as ts
from tesserack.jit._compile.compiled import config
from tesserack.jit._compile.errors import Unsupported

from tests.fx.test_staleness import outcome, same


def computes_with_item(x):
    s = x.mean().item()
    return x * s + s**2


def branches(x):
    if (x > 0).all():
        return x.sqrt()
    return x.clamp(max=1) if x.max() > 1 else x


def masks(x):
    mask = x > 0
    chosen, x = x[mask], x.clone()
    x[~mask] = 0
    return chosen * 2, x, chosen.sum()


def makes_as_many(x):
    n = (x > 0).nonzero().shape[0]
    return ts.zeros(n + 1) + n


def finds(x):
    found, counts = ts.unique(x.round(), return_counts=True)
    (where,) = ts.where(x > 0.3)
    return found, counts, where, x[where], len(where)


def lists(x):
    return [x * k for k in (x > 0).tolist()], int(x.argmax())


def looks_at_many(x):
    total = x.sum()
    for row in x[x > -0.5]:
        total = total + row * 2 if row > 0 else total - 1
    return total


FUNCTIONS = [computes_with_item, branches, masks, makes_as_many, finds, lists, looks_at_many]


@pytest.fixture(autouse=True)
def _graphs_of_few_operators(monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)
    monkeypatch.setitem(config, "recompile_limit", 3)


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_call_goes_by_its_own_values(function, fullgraph):
    compiled = ts.compile(function, fullgraph=fullgraph)
    ts.manual_seed(0)
    met = [ts.randn(4) for _ in range(3)]
    for x in (*met, *met, *(ts.randn(4) for _ in range(4)), *met):
        assert same(outcome(compiled, 0, x), outcome(function, 0, x)), compiled._compiled.reasons
    assert compiled._compiled._count == config["recompile_limit"]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_that_come_again_are_run_without_python(function):
    ts.manual_seed(0)
    a, b = ts.tensor([0.5, -1.0, 2.0, 0.1]), ts.tensor([-0.5, 1.0, 2.0, 0.4])
    compiled = ts.compile(function, fullgraph=True)
    expected = {x: outcome(function, 0, x) for x in (a, b)}
    for x in (a, b):
        outcome(compiled, 0, x)
    compiled._compiled.function = None
    for x in (a, b, b, a):
        assert same(outcome(compiled, 0, x), expected[x])
    assert outcome(compiled, 0, ts.tensor([0.5, 0.6, 0.7, 0.8]))[0] is TypeError


def test_negative_zero_and_nan_are_values_of_their_own():
    def function(x):
        return x.cos() * str(x.sum().item()).count("-"), str(x[0].item())

    compiled = ts.compile(function, fullgraph=True)
    for value in (0.0, -0.0, float("nan"), 0.0, float("nan"), -0.0):
        x = ts.full((1,), value)
        assert same(outcome(compiled, 0, x)[1:], outcome(function, 0, x)[1:])


def test_gradients_pass_what_was_chosen_by_values():
    layer = ts.nn.Linear(4, 4)

    def function(x, lengths):
        x = x[:, : lengths.max().item()]
        y = layer(x)[(ts.arange(x.shape[1]) < lengths[:, None])]
        return y.sin().sum()

    compiled = ts.compile(function)
    for lengths in ([2, 3], [2, 3], [1, 3], [2, 3], [3, 1], [2, 2]):
        found = []
        for call in (function, compiled):
            ts.manual_seed(0)
            x = ts.randn(2, 3, 4, requires_grad=True)
            result = call(x, ts.tensor(lengths))
            layer.zero_grad()
            result.backward()
            found.append([result, x.grad, layer.weight.grad])
        assert same(*found)
    assert compiled._compiled._count > 1


def test_what_changes_something_is_no_graph_of_values():
    held = ts.zeros(())

    def function(x):
        held.add_(1)
        return x * 2 if x.sum() > 0 else x

    compiled = ts.compile(function, fullgraph=True)
    with pytest.raises(Unsupported, match="values of a tensor are read"):
        for _ in range(9):
            compiled(ts.ones(2))
    plain, before = ts.compile(function), held.item()
    for k in range(9):
        x = ts.full((2,), (-1.0) ** k)
        assert ts.equal(plain(x), x * 2 if k % 2 == 0 else x)
    assert held.item() == before + 9


def test_values_that_never_come_again_leave_the_function_to_python():
    compiled = ts.compile(computes_with_item, fullgraph=True)
    for _ in range(config["recompile_limit"] + config["misses"]):
        compiled(ts.randn(4))
    assert compiled._compiled.plain and "changes from call to call" in compiled._compiled.notes[-1]


def test_a_check_that_fails_before_anything_changes_is_made_by_python():
    def function(mean, scale):
        return ts.distributions.Normal(mean, scale).rsample() * 2

    compiled = ts.compile(function, fullgraph=True)
    for _ in range(3):
        compiled(ts.zeros(2), ts.ones(2))
    with pytest.raises(ValueError, match="to satisfy the constraint"):
        compiled(ts.zeros(2), -ts.ones(2))


def test_one_hot_of_so_many_classes_has_sizes_of_its_own():
    seen = ts.zeros(3)

    def function(x):
        hot = ts.nn.functional.one_hot((x > 0).long(), 3)
        seen.add_(hot.sum(0))
        return hot * 2

    compiled = ts.compile(function, fullgraph=True)
    for k in range(4):
        x = ts.tensor([1.0, -1.0, 1.0 - k])
        before = seen.clone()
        assert ts.equal(compiled(x), ts.nn.functional.one_hot((x > 0).long(), 3) * 2)
        assert seen.sum() == before.sum() + 3
