"""``compile``: what changes within a call that stands whole, as by hooks, is seen by what follows in the same run."""

from __future__ import annotations

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.jit._compile.compiled import config
from tesserack.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def _small_programs_too(monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)


def chain(x):
    for _ in range(6):
        x = (x * 0.9 + 0.1).tanh()
    return x


def layers():
    ts.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))


class Settings:
    def __init__(self):
        self.factor, self.table, self.list, self.net = 1.0, {"k": 1.0}, [1.0], layers()


def _sets_attribute(s):
    s.factor = 3.0


def _adds_layer(s):
    s.net.add_module("last", nn.Tanh())


def _puts_parameter(s):
    s.net[2].weight = nn.Parameter(ts.ones(3, 8))


def _replaces_forward(s):
    s.net[1].forward = lambda x: x * 2


CHANGES = {
    "attribute": _sets_attribute,
    "item": lambda s: s.table.__setitem__("k", 3.0),
    "list": lambda s: s.list.append(3.0),
    "mode": lambda s: setattr(s, "factor", 5.0),
    "layer": lambda s: s.net.__setitem__(1, nn.ReLU()),
    "added layer": _adds_layer,
    "parameter": _puts_parameter,
    "forward": _replaces_forward,
    "hook": lambda s: s.net[1].register_forward_hook(lambda m, i, o: o * 2),
}


def of_gradient(s, act):
    s.net[0].weight.register_hook(lambda g: act(s))
    return lambda x: x.pow(2).sum().backward()


def of_step(s, act):
    s.optimizer = ts.optim.SGD(s.net.parameters(), 0.1)
    s.optimizer.register_step_post_hook(lambda *_: act(s))

    def run(x):
        x.sum().backward()
        s.optimizer.step()

    return run


def of_checkpoint(s, act):
    def inner(x):
        act(s)
        return x * 2

    return lambda x: checkpoint(inner, x, use_reentrant=False)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("call", [of_gradient, of_step, of_checkpoint])
def test_what_changes_within_a_call_that_stands_whole_is_seen_after_it(call, change):
    """In the fifth run, by a function that has not run before."""
    found = []
    for compiled in (False, True):
        s, runs = Settings(), []

        def act(s, runs=runs):
            if len(runs) == 5:
                CHANGES[change](s)

        between = call(s, act)

        def step(x, s=s, between=between):
            s.net.zero_grad()
            between(chain(s.net(x)))
            return chain(s.net(x)) * s.factor * s.table["k"] * s.list[-1]

        f = ts.compile(step) if compiled else step
        for _ in range(7):
            runs.append(1)
            found.append(f(ts.ones(2, 3)).detach())
    for plain, graph in zip(found[:7], found[7:], strict=True):
        assert ts.equal(plain, graph)


def test_what_changes_nothing_that_is_read_stands_whole():
    kept = []

    def inner(x):
        parts = []
        for k in range(3):
            parts.append(x * k)
        if x.sum() > 1e9:
            kept.append(len(parts))  # which nobody reads
        return ts.stack(parts).sum(0)

    f = ts.compile(lambda x: chain(checkpoint(inner, x, use_reentrant=False)))
    for _ in range(3):
        f(ts.ones(2, 3, requires_grad=True))
    assert len(f._compiled.places) == 1 and not f._compiled.plain


def test_a_call_that_gives_back_what_it_was_given_need_not_do_so_again():
    given_back = [True]

    def inner(x):
        return x if given_back[0] else (x * 2).tanh()

    def program(x):
        return chain(checkpoint(inner, x, use_reentrant=False)) + x

    f, x = ts.compile(program), ts.ones(2, 3, requires_grad=True)
    for given_back[0] in (True, True, True, False, False, True):
        assert ts.equal(f(x), program(x))
