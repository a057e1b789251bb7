"""Compiled functions that go by values of tensors, or by sizes that follow from them: a graph is of these values."""

from __future__ import annotations

import pytest
import tesserack as ts
from tesserack.jit._compile.compiled import Compiled, config
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


def _work(x):
    for _ in range(6):
        x = (x * 1.01).sin() + x.cos()
    return x


def decides(x):
    y = _work(x) if (x > 0).any() else _work(x + 1) * 2
    return y if (y > 100).any() else y + 1


def decides_early(x):
    return _work(x) if (x > 0).any() else _work(x + 1) * 2


@pytest.fixture
def runs(monkeypatch):
    """The places of graphs that were run for other values than theirs."""
    found = []
    other = Compiled._of_other_values

    def of_other_values(self, entry, args, kwargs):
        found.append(self.places.index(entry))
        return other(self, entry, args, kwargs)

    monkeypatch.setattr(Compiled, "_of_other_values", of_other_values)
    return found


def test_the_graph_of_the_last_values_is_run_first(runs):
    compiled, above, below = ts.compile(decides), ts.ones(4), -ts.ones(4)
    for x in (above, below):
        compiled(x)
    runs.clear()
    for x in (below, below, below):
        assert same(compiled(x), decides(x))
    assert not runs
    assert same(compiled(above), decides(above)) and runs == [1]
    assert same(compiled(above), decides(above)) and runs == [1]


def test_where_values_alternate_the_graph_that_is_meant_is_run_alone(runs):
    compiled, above, below = ts.compile(decides_early, fullgraph=True), ts.ones(4), -ts.ones(4)
    for x in (above, below) * 3:
        compiled(x)
    runs.clear()
    for x in (above, below) * 20 + (below,) * 100 + (above, below) * 20:
        assert same(compiled(x), decides_early(x))
    assert len(runs) <= 2  # after a hundred that were alike nothing is asked first
    assert compiled._compiled._count == 2
    weight = ts.ones(4, requires_grad=True)
    grads = []
    for call in (compiled, decides_early) * 4:
        for sign in (1, -1):
            call(weight * sign).sum().backward()
        grads.append(weight.grad)
        weight.grad = None
    assert all(grad.equal(grads[0]) for grad in grads)


def test_of_several_graphs_those_of_other_first_values_are_not_tried(monkeypatch):
    monkeypatch.setitem(config, "recompile_limit", 8)

    def function(x):
        return _work(x) * int(x.sum())

    compiled = ts.compile(function)
    values = [ts.full((4,), float(k)) for k in range(6)]
    for x in values:
        compiled(x)
    tried = []
    known = compiled._compiled.known
    known.places[:] = [
        entry._replace(call=lambda tensors, entry=entry: tried.append(entry) or entry.call(tensors))
        for entry in known.places
    ]
    known.entries = dict.fromkeys(known.entries, known.places)
    for x in values:
        tried.clear()
        assert same(compiled(x), function(x)) and len(tried) <= 1
