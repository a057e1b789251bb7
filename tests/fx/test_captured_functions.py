"""``compile`` with a backend: computations that are graphs, run where they are the same."""

from __future__ import annotations

import gc
import math
import time

import pytest
import tesserack as ts
import tesserack.nn.functional as F
from tesserack import compiler, nn
from tesserack.jit._compile.compiled import config

from tests.fx.compiled import ITEMS, SCALE, TABLE, Color, Net, Settings, X, factory, helper, same

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


class OwnCall(nn.Module):
    """As packages of graphs have it: the class fills arguments in before the module is called."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(20)])
        self.scale = 2.0

    def __call__(self, x, index=None):
        return super().__call__(x, ts.zeros(len(x)) if index is None else index) * self.scale

    def forward(self, x, index):
        return self.layers(x) + index[:, None]


@pytest.mark.parametrize("grad", [True, False])
def test_a_class_may_say_what_a_call_is(grad, monkeypatch):
    model, x = OwnCall(), ts.randn(4, 3)
    compiled = ts.compile(model)

    def check():
        with ts.set_grad_enabled(grad):
            for _ in range(4):
                assert ts.equal(compiled(x), model(x))
            assert ts.equal(compiled(x, index=ts.ones(4)), model(x, ts.ones(4)))

    check()
    model.scale = 3.0
    check()
    hook = model.register_forward_hook(lambda module, args, out: out + 1)
    check()
    hook.remove()
    monkeypatch.setattr(OwnCall, "__call__", lambda self, x, index=None: nn.Module.__call__(self, x, x[:, 0]))
    check()


class Own(ts.Tensor):
    pass


class Doubles(ts.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * (2 if type(x) is Own else 3)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


OWN = (
    lambda x: x.sin().as_subclass(Own),
    lambda x: {"y": [x.sin().as_subclass(Own) + 1]},
    lambda x: Doubles.apply(x.sin().as_subclass(Own)).as_subclass(ts.Tensor),
    lambda x: (x.sin().as_subclass(Own) * 2).as_subclass(ts.Tensor),
)


@pytest.mark.parametrize("with_backend", [False, True])
@pytest.mark.parametrize("function", OWN)
def test_tensors_of_a_class_of_the_program_are_of_that_class(function, with_backend, backend, monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)
    compiled = ts.compile(function, **({"backend": backend} if with_backend else {}))
    for _ in range(6):
        leaves = [ts.utils._pytree.tree_leaves(f(X)) for f in (compiled, function)]
        assert [type(leaf) for leaf in leaves[0]] == [type(leaf) for leaf in leaves[1]]
        assert same(*leaves)
