"""``compile`` with a backend: plain Python runs wherever a graph may not be the same, and what changes is seen."""

from __future__ import annotations

import copy
import random
import re
import time
import types

import numpy as np
import pytest
import tesserack as ts
from tesserack import compiler, nn

from tests.fx.compiled import ITEMS, TABLE, Net, Settings, W, X, prints, same

CALLS = []


def no_gradient_inside(x):
    with ts.no_grad():
        y = x * 2
    return y + x


def imports(x):
    import json

    return x * len(json.dumps([1]))


def counts(x):
    global CALLS
    CALLS = [*CALLS, 1]
    return x


MADE = types.ModuleType("made_for_a_test")
MADE.n = 2


class Output(dict):
    pass


class Held:
    def __init__(self, value):
        object.__setattr__(self, "value", value)


PLAIN = [
    (lambda x: x * time.time(), (X,), "time"),
    (lambda x: x * random.random(), (X,), "random"),
    (lambda x: x * float(np.random.rand()), (X,), "rand"),
    (lambda x: x if x.sum() > 0 else -x, (X,), "values"),
    (lambda x: x * x.sum().item(), (X,), "item|values"),
    (lambda x: x * x.tolist()[0][0], (X,), "tolist"),
    (lambda x: x[x > 0], (X,), "sizes"),
    (lambda x: x.unique(), (X,), "sizes|values"),
    (lambda x: ITEMS.append(1) or x, (X,), "changes"),
    (lambda x: x.data * 2, (X,), "held"),
    (lambda x: x.numpy().sum(), (X,), "numpy"),
    (lambda x: ts.manual_seed(0) and x, (X,), "manual_seed"),
    (lambda x, f: f(x), (X, np.sin), "object|class"),
    (prints, (X,), "print"),
    (no_gradient_inside, (W,), "__exit__|gradients"),
    (imports, (X,), "making"),
    (counts, (X,), "CALLS"),
    (lambda x: x if x.grad is None else x + 1, (W,), "'grad'"),
    (lambda x: x * x._version, (X,), "_version"),
    (lambda x: getattr(MADE, "n") * x, (X,), "getattr|handed on"),  # noqa: B009
    (lambda x: Output(y=x + 1), (X,), "returned"),
    (lambda x: TABLE, (X,), "holds"),
    (lambda x: lambda: x + 1, (X,), "returned"),
    (lambda x: iter([x + 1]), (X,), "returned"),
]


@pytest.mark.parametrize("case", range(len(PLAIN)))
def test_what_a_graph_would_not_repeat_runs_as_python(case, backend):
    function, args, reason = PLAIN[case]
    compiled = ts.compile(function, backend=backend)
    for _ in range(4):
        compiled(*args)
    assert not backend.graphs
    assert re.search(reason, compiled._compiled.reasons[0]), compiled._compiled.reasons


# --- nothing is stale ------------------------------------------------------------------------------------------------


def changes():
    """By name: a function, its arguments, and something that Python changes between two calls."""
    space = types.SimpleNamespace(n=2.0)
    module = types.ModuleType("made")
    module.factor, module.table = 2.0, {"a": [1.0]}
    scope = {"module": module, "scale": 2.0, "helper": lambda x: x + 1, "box": [1.0], "space": space, "ts": ts}
    exec(
        "def of_global(x): return x * scale\n"
        "def of_function(x): return helper(x)\n"
        "def of_module(x): return x * module.factor + module.table['a'][0]\n"
        "def of_list(x): return x * box[0]\n"
        "def of_default(x, n=[2.0]): return x * n[0]\n"
        "def of_keyword(x, *, n=2.0): return x * n\n"
        "class Base:\n    rate = 2.0\n    def step(self, x): return x * self.rate\n"
        "base = Base()\n"
        "def of_class(x): return base.step(x)\n"
        "def of_class_attribute(x): return x * Base.rate\n",
        scope,
    )
    yield "global", scope["of_global"], lambda: scope.update(scale=3.0)
    yield "function", scope["of_function"], lambda: scope.update(helper=lambda x: x - 1)
    yield (
        "code of a function",
        scope["of_function"],
        lambda: setattr(scope["helper"], "__code__", (lambda x: x * 7).__code__),
    )
    yield "attribute of a module", scope["of_module"], lambda: setattr(module, "factor", 5.0)
    yield "deep in a module", scope["of_module"], lambda: module.table["a"].__setitem__(0, 9.0)
    yield "list", scope["of_list"], lambda: scope["box"].__setitem__(0, 4.0)
    yield "default", scope["of_default"], lambda: scope["of_default"].__defaults__[0].__setitem__(0, 5.0)
    yield "keyword default", scope["of_keyword"], lambda: scope["of_keyword"].__kwdefaults__.update(n=6.0)
    yield "method", scope["of_class"], lambda: setattr(scope["Base"], "step", lambda self, x: x - 1)
    yield "attribute of a class", scope["of_class"], lambda: setattr(scope["Base"], "rate", 8.0)
    yield "attribute of an object", scope["of_class"], lambda: setattr(scope["base"], "rate", 9.0)
    yield "class", scope["of_class_attribute"], lambda: setattr(scope["Base"], "rate", 10.0)
    cell = 2.0

    def closure(x):
        return x * cell

    def change():
        nonlocal cell
        cell = 3.0

    yield "closure", closure, change
    held = ts.ones(2)
    yield "values of a held tensor", lambda x: x + held, lambda: held.add_(1)
    yield "default dtype", lambda x: x + ts.ones(2), lambda: ts.set_default_dtype(ts.float64)
    yield "gradients", lambda x: x * W, lambda: ts.set_grad_enabled(False)


@pytest.mark.parametrize("number", range(16))
def test_what_python_changes_between_calls_counts(number, backend):
    _, function, change = [*changes()][number]
    compiled = ts.compile(function, backend=backend)
    try:
        for _ in range(3):
            assert same(compiled(X), function(X))
        assert backend.graphs, compiled._compiled.reasons
        change()
        for _ in range(2):
            assert same(compiled(X), function(X))
    finally:
        ts.set_default_dtype(ts.float32)
        ts.set_grad_enabled(True)


MODULE_CHANGES = {
    "training": lambda net: net.eval(),
    "parameter": lambda net: setattr(net.linear, "weight", nn.Parameter(ts.zeros(4, 2))),
    "parameter in place": lambda net: net.linear.weight.data.mul_(3),
    "data of a parameter": lambda net: setattr(net.linear.weight, "data", ts.ones(4, 2)),
    "requires_grad": lambda net: net.linear.weight.requires_grad_(False),
    "buffer": lambda net: net.register_buffer("shift", ts.zeros(4)),
    "submodule": lambda net: setattr(net, "act", nn.Tanh()),
    "another block": lambda net: net.blocks.append(nn.Linear(4, 4)),
    "attribute": lambda net: setattr(net, "flag", False),
    "setting": lambda net: setattr(net.settings, "factor", 7.0),
    "class attribute": lambda net: setattr(type(net), "gain", 2.5),
    "forward": lambda net: setattr(type(net), "forward", lambda self, x: self.linear(x)),
    "own forward": lambda net: setattr(net, "forward", lambda x: x),
    "hook": lambda net: net.linear.register_forward_hook(lambda m, i, o: o * 2),
    "dtype": lambda net: net.linear.register_forward_pre_hook(lambda m, i: (i[0] * 0.5,)),
}


@pytest.mark.parametrize("name", MODULE_CHANGES)
def test_what_changes_of_a_module_counts(name, backend):
    class Own(Net):
        pass

    ts.manual_seed(0)
    net = Own()
    other = copy.deepcopy(net)
    compiled = ts.compile(net, backend=backend)
    for _ in range(3):
        assert same(compiled(X), other(X))
    assert backend.graphs, compiled._compiled.reasons
    for each in {"class attribute": [net], "forward": [net]}.get(name, [net, other]):
        ts.manual_seed(1)
        MODULE_CHANGES[name](each)
    for _ in range(2):
        assert same(compiled(X), other(X))


def test_attributes_by_names_made_at_run_time_run_as_python(backend):
    """No guard sees which one was taken."""
    settings, which = Settings(), ["factor"]
    settings.other = 5.0

    def scaled(x):
        return x * getattr(settings, "".join(which)) + hasattr(settings, "late")

    compiled = compiler.compile(scaled, backend=backend)
    assert same(compiled(X), X * 2)
    settings.factor = 3.0
    assert same(compiled(X), X * 3)
    which[:] = ["other"]
    assert same(compiled(X), X * 5)
    settings.late = True
    assert same(compiled(X), X * 5 + 1)
