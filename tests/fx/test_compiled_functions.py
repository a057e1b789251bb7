"""``compile`` with a backend: graphs run where they are the same, and plain Python does wherever they may not be."""

from __future__ import annotations

import copy
import enum
import gc
import math
import pickle
import random
import re
import time
import types

import numpy as np
import pytest
import tesserack as ts
import tesserack.nn.functional as F
from tesserack import compiler, fx, nn
from tesserack.jit._compile.aot import aot_autograd, make_boxed_func
from tesserack.jit._compile.errors import BackendCompilerFailed, InvalidBackend, Unsupported


class Backend:
    """Runs graphs as they are, and keeps them."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, example_inputs, **options):
        assert isinstance(gm, fx.GraphModule)
        gm.graph.lint()
        self.graphs.append(gm)
        return gm.forward


@pytest.fixture
def backend():
    return Backend()


X = ts.tensor([[1.0, -2.0], [3.0, 4.0]])
SCALE, TABLE, ITEMS, CALLS = 2.0, {"k": 2}, [1, 2], []


def same(a, b):
    leaves = [ts.utils._pytree.tree_leaves(v) for v in (a, b)]
    return len(leaves[0]) == len(leaves[1]) and all(
        ts.equal(x, y) and x.requires_grad == y.requires_grad if isinstance(x, ts.Tensor) else x == y
        for x, y in zip(*leaves, strict=True)
    )


class Color(enum.Enum):
    RED = 1


class Settings:
    def __init__(self):
        self.factor, self.names = 2.0, ["a"]


def helper(x):
    return x * SCALE


def factory(n):
    def inner(x, power=2):
        return x**power + n

    return inner


class Net(nn.Module):
    gain = 3.0

    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.act = nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU()
        self.settings, self.blocks, self.flag = Settings(), nn.ModuleList([nn.Linear(4, 4)]), True
        self.register_buffer("shift", ts.ones(4))

    def forward(self, x, extra=None):
        y = self.act(self.norm(self.linear(x))) * self.settings.factor * self.gain
        for block in self.blocks:
            y = block(y) + self.shift
        if extra is not None:
            y = y + extra["bias"]
        return {"y": y, "kept": x} if self.flag else y


# --- what is captured ------------------------------------------------------------------------------------------------

CAPTURED = [
    (lambda x: (x @ x).relu() * SCALE + TABLE["k"], (X,)),
    (lambda x: helper(x) + len(ITEMS), (X,)),
    (lambda x, k: x * k if k > 1 else x, (X, 3)),
    (lambda d: [d["x"] + 1, {"z": d["x"].T}, d["n"]], ({"x": X, "n": "name"},)),
    (lambda x: x.reshape(-1)[: x.shape[0]] * math.sqrt(x.numel()), (X,)),
    (lambda x: sum(t.sum() for t in x.unbind(0)), (X,)),
    (lambda x: (x, x, x + 1), (X,)),
    (lambda x: F.softmax(x, -1).max(dim=1), (X,)),
    (lambda x: ts.cat([x, ts.zeros(1, 2), ts.arange(2)[None]]), (X,)),
    (lambda x: F.cross_entropy(x, x.argmax(1)), (X,)),
    (factory(3), (X,)),
    (lambda x: [y + 1 for y in x.chunk(2)][1], (X,)),
    (lambda c, x: x if c is Color.RED else -x, (Color.RED, X)),
    (lambda s, x: x * s.factor, (Settings(), X)),
]


@pytest.mark.parametrize("case", range(len(CAPTURED)))
def test_plain_computations_are_graphs(case, backend):
    function, args = CAPTURED[case]
    compiled = ts.compile(function, backend=backend)
    for _ in range(3):
        assert same(compiled(*args), function(*args)), compiled._compiled.reasons
    assert len(backend.graphs) == 1 and not compiled._compiled.reasons


def test_other_shapes_dtypes_and_values_are_other_graphs(backend):
    compiled = ts.compile(lambda x, n=1: x.repeat(n, 1) + n, backend=backend)
    for x in (X, X[:1], X.double(), X.T, X.int(), ts.ones(3, 2)):
        for n in (1, 2):
            assert same(compiled(x, n), x.repeat(n, 1) + n)
    assert len(backend.graphs) == 8  # then it stays plain


def test_modules_train_as_they_do_by_themselves(backend):
    ts.manual_seed(0)
    nets = [Net() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    compiled = ts.compile(nets[1], backend=backend)
    optimizers = [ts.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) for net in nets]
    data = [ts.randn(5, 2) for _ in range(6)]
    for k, x in enumerate(data):
        for net, run, optimizer in zip(nets, (nets[0], compiled), optimizers, strict=True):
            optimizer.zero_grad()
            run(x)["y"].square().mean().backward()
            optimizer.step()
            net.train(k % 3 != 2)
    for (name, a), (_, b) in zip(nets[0].state_dict().items(), nets[1].state_dict().items(), strict=True):
        assert ts.equal(a, b), name
    assert len(backend.graphs) == 2 and not compiled._compiled.reasons  # training and not
    names = {n for n, _ in backend.graphs[0].named_parameters()}
    assert names == {n for n, _ in nets[1].named_parameters()}


def test_the_compiler_decides_what_runs():
    def negated(gm, example_inputs):
        assert [tuple(x.shape) for x in example_inputs] == [(2, 2)]
        return lambda x: [-y for y in gm(x)]

    assert same(ts.compile(lambda x: x + 1, backend=negated)(X), -(X + 1))


def test_a_compiler_that_writes_other_calls():
    """As packages that bring a compiler do: look for calls, and write others."""

    def swap(gm, example_inputs):
        for node in gm.graph.nodes:
            if str(node.target) == "aten.relu.default":
                node.target = ts.sigmoid
        gm.recompile()
        return gm

    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).eval()
    assert same(ts.compile(net, backend=swap)(X), ts.sigmoid(net[0](X)))


def test_random_numbers_and_dropout_go_on_as_they_would(backend):
    def program(x):
        return F.dropout(x, 0.5) + ts.rand(2, 2)

    compiled = ts.compile(program, backend=backend)
    found = []
    for run in (program, compiled):
        ts.manual_seed(3)
        found.append([run(X) for _ in range(4)])
    assert same(*found) and len(backend.graphs) == 1


def test_changed_arguments_are_changed(backend):
    def program(x, y):
        x.add_(1)
        y[0] = x.sum()
        return x

    compiled = ts.compile(program, backend=backend)
    for _ in range(3):
        a, b, c, d = X.clone(), ts.zeros(3), X.clone(), ts.zeros(3)
        result = compiled(a, b)
        assert result is a and same([program(c, d), d], [result, b])
    assert len(backend.graphs) == 1


# --- what stays plain ------------------------------------------------------------------------------------------------


class Straight(ts.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


def prints(x):
    print("hi")
    return x


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


W = X.clone().requires_grad_()


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
    (lambda x: TABLE.update(k=TABLE["k"]) or x * ts.tensor(2.0), (X,), "plain numbers"),
    (lambda x: x.data * 2, (X,), "plain numbers|held"),
    (lambda x: x.numpy().sum(), (X,), "numpy"),
    (lambda x: ts.manual_seed(0) and x, (X,), "manual_seed"),
    (lambda x: Straight.apply(x), (W,), "apply"),
    (lambda x: ts.autograd.grad(x.square().sum(), x)[0], (W,), "grad"),
    (lambda x, f: f(x), (X, np.sin), "object|class"),
    (prints, (X,), "print"),
    (no_gradient_inside, (W,), "__exit__|gradients"),
    (imports, (X,), "import"),
    (counts, (X,), "CALLS"),
    (lambda x: x if x.grad is None else x + 1, (W,), "'grad'"),
    (lambda x: x * x._version, (X,), "_version"),
    (lambda x: getattr(MADE, "n") * x, (X,), "getattr|handed on"),  # noqa: B009
    (lambda x: Output(y=x + 1), (X,), "returned"),
    (lambda x: [Held(x * 2)], (X,), "returned|__setattr__"),
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


# --- around it -------------------------------------------------------------------------------------------------------


def test_errors_of_programs_and_compilers(backend):
    compiled = ts.compile(lambda x: x @ ts.ones(7, 1), backend=backend)
    with pytest.raises(RuntimeError):
        compiled(X)
    with pytest.raises(InvalidBackend, match="Invalid backend: 'nothing'"):
        ts.compile(lambda x: x, backend="nothing")

    def failing(gm, example_inputs):
        raise KeyError("odd")

    with pytest.raises(BackendCompilerFailed, match="backend='failing' raised:\nKeyError") as caught:
        ts.compile(lambda x: x + 1, backend=failing)(X)
    assert isinstance(caught.value.inner_exception, KeyError)
    with pytest.raises(BackendCompilerFailed, match="expected a function"):
        ts.compile(lambda x: x + 1, backend=lambda gm, inputs: 3)(X)
    with pytest.raises(Unsupported, match="print"):
        ts.compile(prints, backend="eager", fullgraph=True)(X)
    with pytest.raises(RuntimeError, match="mode or options"):
        ts.compile(prints, mode="max-autotune", options={})


def test_names_of_compilers(backend):
    compiler.register_backend(backend, "kept_for_a_test")
    assert "kept_for_a_test" in compiler.list_backends() and "eager" not in compiler.list_backends()
    assert {"eager", "aot_eager"} <= set(compiler.list_backends(exclude_tags=()))
    ts.compile(lambda x: x + 1, backend="kept_for_a_test")(X)
    assert len(backend.graphs) == 1
    with pytest.raises(AssertionError, match="duplicate"):
        compiler.register_backend(backend, "kept_for_a_test")


def test_options_and_modes_reach_the_compiler():
    seen = []

    def taking(gm, example_inputs, **options):
        seen.append(options)
        return gm

    ts.compile(lambda x: x + 1, backend=taking, mode="default")(X)
    ts.compile(lambda x: x + 1, backend=taking, options={"a": 1})(X)
    assert seen == [{"mode": "default"}, {"options": {"a": 1}}]


def test_stances(backend):
    compiled = ts.compile(lambda x: x + 1, backend=backend)
    with compiler.set_stance("force_eager"):
        compiled(X)
    assert not backend.graphs
    compiled(X)
    with compiler.set_stance("eager_on_recompile"):
        compiled(X[:1])
    with compiler.set_stance("fail_on_recompile"):
        compiled(X)
        with pytest.raises(RuntimeError, match="recompile"):
            compiled(X[:1])
    assert len(backend.graphs) == 1
    other = Backend()
    with compiler.set_stance(force_backend=other):
        compiled(X[:1])
    assert len(other.graphs) == 1

    @compiler.set_stance("force_eager")
    def plain():
        return compiled(ts.ones(3))

    plain()
    assert len(backend.graphs) == 1
    with pytest.raises(RuntimeError, match="invalid"):
        compiler.set_stance("odd")


def test_disabled_functions_trusted_ones_and_forgetting(backend):
    inner = compiler.disable(lambda x: x * 2, reason="it is odd")
    compiled = ts.compile(lambda x: inner(x) + 1, backend=backend)
    assert same(compiled(X), X * 2 + 1) and "it is odd" in compiled._compiled.reasons[0]
    assert compiler.is_compiling() is False
    seen = []

    @compiler.allow_in_graph
    def trusted(x):
        seen.append(compiler.is_compiling())
        return x * 3

    compiled = ts.compile(lambda x: trusted(x), backend=backend)
    compiled(X), compiled(X)
    assert len(backend.graphs) == 1 and seen == [True]
    compiler.reset()
    compiled(X)
    assert len(backend.graphs) == 2


def test_modules_compiled_in_place(backend):
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    expected = net(X)
    net.compile(backend=backend)
    assert same(net(X), expected) and same(net(X), expected) and len(backend.graphs) == 1
    heard = []
    net.register_forward_hook(lambda m, i, o: heard.append(1))
    net(X), net(X)
    assert len(heard) == 2 and [*net.state_dict()] == ["0.weight", "0.bias"]
    for twin in (copy.deepcopy(net[0]), pickle.loads(pickle.dumps(net[0]))):
        assert same(twin(X), net[0](X))
    net[0].compile()
    assert same(net[0](X), F.linear(X, net[0].weight, net[0].bias))


def test_explained_calls():
    found = compiler.explain(lambda x: x.relu() + 1)(X)
    assert (found.graph_count, found.graph_break_count, found.op_count) == (1, 0, 2) and "aten.relu" in str(found)
    found = compiler.explain(prints)(X)
    assert found.graph_count == 0 and "print" in found.break_reasons[0].reason and "Break Reason 1" in str(found)


def test_larger_models(backend):
    ts.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
            self.conv2, self.bn2 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)

        def forward(self, x):
            return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + x)

    models = [
        (
            nn.Sequential(nn.Conv2d(3, 4, 3), Block(4), Block(4), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            ts.randn(2, 3, 8, 8),
        ),
        (nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2), ts.randn(2, 5, 8)),
        (nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10), nn.LogSoftmax(-1)), ts.randint(0, 10, (2, 5))),
    ]
    for model, x in models:
        model.eval()
        compiled = ts.compile(model, backend=backend)
        for _ in range(2):
            assert same(compiled(x), model(x)), compiled._compiled.reasons
        assert not compiled._compiled.reasons
    assert len(backend.graphs) == 3


def test_compilers_of_both_directions():
    graphs = []

    def compiler(gm, example_inputs):
        graphs.append([node.op for node in gm.graph.nodes])
        return make_boxed_func(gm.forward)

    ts.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    twin = copy.deepcopy(net)
    compiled = ts.compile(net, backend=aot_autograd(fw_compiler=compiler))
    for _ in range(2):
        for model in (compiled, twin):
            model(X).square().sum().backward()
        for p, q in zip(net.parameters(), twin.parameters(), strict=True):
            assert ts.allclose(p.grad, q.grad)
    assert len(graphs) == 2 and graphs[0].count("placeholder") == 5 and "get_attr" not in graphs[0]
    with ts.no_grad():
        assert same(compiled(X), twin(X)) and len(graphs) == 3


AOT = {
    "layers": (lambda x: F.gelu(x @ x.T).softmax(-1).square().sum(), [(3, 4)]),
    "dropout": (lambda x: F.dropout(x, 0.5).sum(), [(3, 4)]),
    "two results": (lambda x, y: (x * y, (x.exp() + y).detach(), y.sum(0)), [(3, 4), (4,)]),
    "unused": (lambda x, y: x.sin() + ts.zeros_like(y), [(3, 4), (4,)]),
    "several parts": (lambda x: (x.max(0).values + x.std(0)).logsumexp(0), [(3, 4)]),
    "shared": (lambda x: x.relu() * x.relu() + x.reshape(-1)[:4], [(3, 4)]),
}


@pytest.mark.parametrize("name", AOT)
def test_backward_graphs_take_what_forward_graphs_save(name):
    function, shapes = AOT[name]
    calls, graphs = [], []

    def compiler(gm, example_inputs):
        gm.graph.lint()
        graphs.append(gm)
        return make_boxed_func(lambda *args: calls.append(gm) or gm(*args))

    compiled = ts.compile(function, backend=aot_autograd(fw_compiler=compiler))
    for k in range(3):
        found = []
        for run in (function, compiled):
            ts.manual_seed(k)
            args = [ts.randn(*shape, requires_grad=True) for shape in shapes]
            results = ts.utils._pytree.tree_leaves(run(*args))
            sum((r * r).sum() for r in results if r.requires_grad).backward()
            found.append([*results, *(ts.zeros(()) if x.grad is None else x.grad for x in args), ts.get_rng_state()])
        assert same(*found)
    assert len(graphs) == 2, compiled._compiled.reasons
    assert all(calls.count(gm) >= 2 for gm in graphs)
    first, second = (
        {str(node.target).split(".")[1] for node in gm.graph.nodes if "aten" in str(node.target)} for gm in graphs
    )
    once = {"_softmax", "gelu", "relu", "native_dropout", "logsumexp", "max", "exp", "sin"}
    assert first & once and not first & second & once, (first, second)


def test_gradients_of_gradients_through_a_compiler():
    compiled = ts.compile(lambda x: (x * x * x).sum(), backend=aot_autograd(fw_compiler=lambda gm, _: gm.forward))
    x = X.clone().requires_grad_()
    for _ in range(2):
        (first,) = ts.autograd.grad(compiled(x), x, create_graph=True)
        (second,) = ts.autograd.grad(first.sum(), x)
        assert same(second, 6 * X)


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


def test_collections_of_garbage_are_not_of_the_function(backend):
    """They come anywhere, with callbacks and finalizers of anybody."""
    seen = []

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            seen.append(time.perf_counter())

    def noted(phase, info):
        seen.append((phase, time.perf_counter()))

    def summed(x):
        for _ in range(200):
            x = x + [[1.0]][0][0]
        return x

    before, made = gc.get_threshold(), [Cycle() for _ in range(100)]
    gc.callbacks.append(noted)
    gc.set_threshold(10)
    del made
    try:
        compiled = compiler.compile(summed, backend=backend)
        for _ in range(2):
            assert same(compiled(X), summed(X))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(noted)
    assert len(backend.graphs) == 1 and not compiled._compiled.reasons
    assert {type(entry) for entry in seen} == {tuple, float}
