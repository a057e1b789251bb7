"""Whatever Python changes between two calls of a compiled function, the second gives what plain Python gives.

A case, of ``tests/fx/stale``, makes a function of a tensor and a change; where it says so, the function is known to run
as a graph before, so that the graph is what could be stale.
"""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest
import tesserack as ts
from tesserack.jit._compile.compiled import config
from tesserack.jit._compile.state import Tokens

from tests.fx.stale import asked, bound, closely, containers, functions, modules, objects, settings, values  # noqa: F401  # they fill CASES
from tests.fx.stale.cases import CASES

X = ts.tensor([[1.0, -2.0], [3.0, 4.0]])


class Backend:
    """Runs graphs as they are."""

    def __call__(self, gm, example_inputs, **options):
        return gm.forward


def leaves(value):
    return ts.utils._pytree.tree_leaves(value)


def alike(a, b):
    if not (isinstance(a, ts.Tensor) and isinstance(b, ts.Tensor)):
        return a == b
    same = a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype and a.device == b.device
    return same and a.requires_grad == b.requires_grad and (a.is_meta or ts.equal(a, b))


def outcome(function, seed, *args):
    """What a call gives, or how it fails, and how far random numbers have gone."""
    ts.manual_seed(seed)
    try:
        found = leaves(function(*args))
    except Exception as error:
        found = [type(error), str(error)]
    return [*found, bytes(ts.get_rng_state().tolist())] if ts.get_default_device().type != "meta" else found


def seeded(make):
    ts.manual_seed(0)
    return make()


def same(a, b):
    return len(a) == len(b) and all(map(alike, a, b))


@pytest.mark.filterwarnings("ignore:Anomaly", "ignore:odd", "ignore:.*autocast", "ignore:.*batch")
@pytest.mark.parametrize("gear", ["backend", "default"])
@pytest.mark.parametrize("name", CASES)
def test_changes_between_calls_count(name, gear, monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)
    made, twin = seeded(CASES[name]), seeded(CASES[name])
    compiled = ts.compile(made.function, backend=Backend() if gear == "backend" else "inductor")
    state = compiled._compiled
    try:
        for k in range(3):
            assert same(outcome(compiled, k, X), outcome(twin.function, k, X))
        captured = made.captured and not (made.only_default and gear == "backend")
        assert (state._count > 0) == captured, state.reasons
        seeded(made.change), seeded(twin.change)
        for k in range(3):
            assert same(outcome(compiled, k, X), outcome(twin.function, k, X)), state.reasons
    finally:
        twin.undo()
        made.undo()
        os.environ.pop("TS_STALE", None)


@pytest.mark.parametrize("gear", ["backend", "default"])
def test_a_run_is_seen_whole_where_garbage_is_collected_at_any_time(gear):
    held = {"n": 2.0}

    def function(x):
        return x.sin().cos().tan().exp().sin().cos().tan().exp().sin() * sum(held.values())

    before = gc.get_threshold()
    for threshold in range(1, 40):
        compiled = ts.compile(function, backend=Backend() if gear == "backend" else "inductor")
        held["n"] = 2.0
        gc.set_threshold(threshold)
        try:
            compiled(X)
        finally:
            gc.set_threshold(*before)
        held["n"] = 7.0
        assert ts.equal(compiled(X), function(X)), threshold


def test_a_dict_may_grow_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """As caches of the library do, that what looks at them fills."""
    table = {f"k{n}": [n] for n in range(4)}
    of = Tokens.of

    def growing(self: Tokens, value: Any) -> Any:
        if len(table) < 6 and any(value is item for item in list(table.values())):
            table[f"more{len(table)}"] = [0]
        return of(self, value)

    monkeypatch.setattr(Tokens, "of", growing)
    compiled = ts.compile(lambda x: x * table["k1"][0] + len(table))
    for _ in range(4):
        assert compiled(ts.ones(2)).tolist() == [1 + len(table)] * 2
    table["k1"] = [3]
    assert compiled(ts.ones(2)).tolist() == [3 + len(table)] * 2
