"""``compile`` without a backend: results, gradients and whole trainings are those of plain Python, bit by bit."""

from __future__ import annotations

import copy
import cProfile
import gc
import sys
import threading
import typing
import warnings
import weakref

import pytest
import tesserack as ts
import tesserack.nn.functional as F
from tesserack import nn
from tesserack.jit._compile import compiled as compiled_module
from tesserack.jit._compile.compiled import config

X = ts.tensor([[1.0, -2.0], [3.0, 4.0]])


@pytest.fixture(autouse=True)
def _small_programs_too(monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)


def leaves(value):
    return ts.utils._pytree.tree_leaves(value)


def alike(a, b):
    if not isinstance(a, ts.Tensor):
        return a == b
    return (
        (a.shape, a.stride(), a.dtype, a.requires_grad) == (b.shape, b.stride(), b.dtype, b.requires_grad)
        and (a._base is None) == (b._base is None)
        and ts.equal(a, b)
    )


def same(a, b):
    a, b = leaves(a), leaves(b)
    return len(a) == len(b) and all(map(alike, a, b))


# --- models that train -----------------------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.conv2, self.bn2 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True))) + x)


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.ln, self.ln2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * d, d))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln(x)).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(self.ln2(x))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.blocks, self.head = nn.ModuleList([Attention(8, 2) for _ in range(2)]), nn.Linear(8, 11, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        y = self.words(x) + self.places(ts.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            y = block(y)
        return self.head(y)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Gated(nn.Module):
    """Buffers, masks, switches that no gradient passes, and results in a dict."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.scale = nn.Linear(6, 6), nn.Linear(6, 3), nn.Parameter(ts.ones(6))
        self.register_buffer("mean", ts.zeros(6))

    def forward(self, x):
        with ts.no_grad():
            self.mean.lerp_(x.mean(0), 0.1)
        y = (x - self.mean) * ts.sigmoid(self.a(x)) * self.scale
        y = ts.where(y > 0, y, y.detach() * 0.1).masked_fill(x > 1.5, 0.0)
        return {"logits": self.b(F.dropout(y, 0.2, self.training)), "kept": y}["logits"]


def classifier():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.SiLU(), nn.Dropout(0.3), nn.Linear(8, 3))


def pictures():
    return nn.Sequential(nn.Conv2d(3, 4, 3), Residual(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(40, 3))


MODELS = {
    "residual": (pictures, (4, 3, 6, 6)),
    "mlp": (classifier, (5, 6)),
    "gated": (Gated, (5, 6)),
    "words": (Words, None),
    "recurrent": (Recurrent, (3, 5, 4)),
    "encoder": (encoder, (3, 5, 8)),
}
TRAININGS = {
    "sgd": {"optimizer": lambda p: ts.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01)},
    "adamw": {"optimizer": lambda p: ts.optim.AdamW(p, 0.01), "clip": 0.5},
    "accumulated": {"optimizer": lambda p: ts.optim.Adam(p, 0.01), "every": 2},
    "bfloat16": {"optimizer": lambda p: ts.optim.AdamW(p, 0.01), "autocast": True},
}


def batches(shape, steps):
    ts.manual_seed(1)
    if shape is None:
        return [(ts.randint(0, 11, (3, 6)), ts.randint(0, 11, (18,))) for _ in range(steps)]
    return [(ts.randn(*shape), ts.randint(0, 3, shape[:1])) for _ in range(steps)]


def trained(net, run, data, optimizer, clip=None, every=1, autocast=False):
    """The losses of a training, and the random state it ends in."""
    step, losses = optimizer(net.parameters()), []
    scheduler = ts.optim.lr_scheduler.CosineAnnealingLR(step, 10)
    ts.manual_seed(2)
    for k, (x, y) in enumerate(data):
        with ts.autocast("cpu", ts.bfloat16, enabled=autocast):
            out = run(x)
            loss = F.cross_entropy(out.flatten(0, -2), y) / every
        loss.backward()
        losses.append(loss.detach())
        if (k + 1) % every == 0:
            if clip is not None:
                losses.append(nn.utils.clip_grad_norm_(net.parameters(), clip).detach())
            step.step(), scheduler.step()
            step.zero_grad(set_to_none=k % 3 == 0)
    return losses, ts.get_rng_state()


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("name", MODELS)
def test_trainings_are_those_of_plain_python(name, training):
    make, shape = MODELS[name]
    ts.manual_seed(0)
    net = make()
    twin = copy.deepcopy(net)
    compiled = ts.compile(twin)
    data = batches(shape, 10)
    assert same(trained(net, net, data, **TRAININGS[training]), trained(twin, compiled, data, **TRAININGS[training]))
    assert same(dict(net.state_dict()), dict(twin.state_dict()))
    state = compiled._compiled
    if training != "bfloat16":  # whose casts are kept between calls: that is Python's
        assert state._count == 1, state.reasons
    net.eval(), twin.eval()
    for _ in range(2):
        with ts.no_grad():
            assert same(net(data[0][0]), compiled(data[0][0]))
    assert not state.reasons


# --- functions -------------------------------------------------------------------------------------------------------


def written(x, y):
    x.add_(1)
    y[0] = x.sum()
    return x, x[0], y.view(-1)


def views(x):
    a = x.T[1:]
    return a, a.reshape(-1), x.unbind(0), x.expand(3, 2, 2), x.detach()


def twice(x):
    a, b = x * 2 + 1, x * 2 + 1
    return a, b, [a, (b, a)], {"n": 3, "x": x}


def unused(x):
    ts.rand(3)
    y = x.exp() * ts.randn(2, 2)
    return ts.bernoulli(ts.sigmoid(y)), F.dropout(x)


def constants(x):
    return x * ts.tensor([1.0, 2.0]) + ts.arange(2) + ts.zeros(2).fill_(3), ts.tensor(5)


def switched(x):
    with ts.no_grad():
        y = x * 2
    return y + x, y


def recovers(x):
    try:
        return ts.linalg.cholesky(x @ x.T)
    except RuntimeError:
        return x * 0


FUNCTIONS = [written, views, twice, unused, constants, switched, recovers]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_functions_are_those_of_plain_python(function, grad):
    compiled = ts.compile(function)
    count = function.__code__.co_argcount
    for k in range(4):
        results = []
        for run in (function, compiled):
            ts.manual_seed(k)
            given = [(ts.rand(2, 2) + k).requires_grad_(grad) for _ in range(count)]
            found = run(*[x * 1 for x in given])
            total = sum((x.sum() for x in leaves(found) if isinstance(x, ts.Tensor) and x.requires_grad), ts.zeros(()))
            if total.requires_grad:
                total.backward()
            results.append((found, [x.grad for x in given], ts.get_rng_state()))
        assert same(*results), compiled._compiled.reasons
    assert compiled._compiled._count >= 1, compiled._compiled.reasons
    if function is not recovers:
        assert compiled._compiled._count == 1


def test_results_that_are_alike_are_not_one():
    compiled = ts.compile(twice)
    compiled(X)
    a, b, *_ = compiled(X)
    a.add_(1)
    assert a is not b and same(b, X * 2 + 1)


def test_errors_of_operators_are_those_that_python_has():
    """A graph that fails is no graph: the function runs, and goes on after the error as it says."""
    compiled = ts.compile(recovers)
    good, bad = ts.eye(2), ts.zeros(2, 2)
    for x in (good, bad, good, bad):
        assert same(compiled(x), recovers(x))
    fails = ts.compile(lambda x, i: ts.nn.functional.embedding(i, x))
    fails(X, ts.tensor([0, 1]))
    for run in (fails, lambda x, i: ts.nn.functional.embedding(i, x)):
        with pytest.raises(IndexError):
            run(X, ts.tensor([0, 9]))


def test_warnings_come_as_often_as_without():
    compiled = ts.compile(lambda x: F.softmax(x * 2) + 1)
    for run in (compiled, lambda x: F.softmax(x * 2) + 1):
        for _ in range(4):
            with pytest.warns(UserWarning, match="dim"):
                run(X)


def test_what_is_kept_in_the_first_run_is_read_by_graphs():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = {}

        def forward(self, x):
            kind = typing.Sequence if x.dtype is ts.float32 else typing.Mapping
            if x.shape not in self.kept:
                self.kept[x.shape] = ts.arange(x.shape[1]) * 2.0
            return x + self.kept[x.shape] + (kind is typing.Sequence)

    net = Cached()
    compiled = ts.compile(net)
    for n in (2, 2, 2, 2, 3, 3, 3, 2):
        assert same(compiled(ts.ones(2, n)), ts.ones(2, n) + ts.arange(n) * 2.0 + 1)
    assert compiled._compiled._count >= 1 and not compiled._compiled.reasons
    net.kept[ts.Size([2, 2])].fill_(7.0)
    assert same(compiled(ts.ones(2, 2)), ts.full((2, 2), 9.0))
    net.kept.clear()
    assert same(compiled(ts.ones(2, 2)), ts.ones(2, 2) + ts.arange(2) * 2.0 + 1)


def test_side_effects_happen_each_time(capsys):
    seen, made = [], {"calls": 0}

    def noted(x):
        seen.append(x.shape)
        return x + 1

    def counted(x):
        made["calls"] += 1
        return x * made["calls"]

    def told(x):
        print("called")
        return x

    class Own(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls = self.calls + 1
            return x * self.calls

    own = Own()
    for function in (noted, counted, told, own):
        compiled = ts.compile(function)
        results = [compiled(X) for _ in range(4)]
        assert len(results) == 4 and compiled._compiled._count == 0
    assert len(seen) == 4 and made["calls"] == 4 and own.calls == 4 and capsys.readouterr().out == "called\n" * 4
    assert same(results, [X * k for k in (1, 2, 3, 4)])


def test_second_derivatives_and_hooks_on_gradients():
    def cubed(x):
        return (x * x * x).sum()

    compiled, found = ts.compile(cubed), []
    for run in (cubed, compiled, compiled):
        x = X.clone().requires_grad_()
        x.register_hook(lambda g: g * 2)
        (first,) = ts.autograd.grad(run(x), x, create_graph=True)
        (second,) = ts.autograd.grad(first.sum(), x)
        found.append([first, second])
    assert same(found[0], found[1]) and same(found[0], found[2])


def test_arguments_that_are_one_another_or_held():
    held = ts.ones(2, 2)

    def told(x, y):
        return x + 1 if x is y else x * 2 if x is held else x - 1

    compiled, other = ts.compile(told), ts.ones(2, 2)
    for args in ((other, other), (other, X), (held, X), (X, other), (held, held), (X, X)):
        for _ in range(2):
            assert same(compiled(*args), told(*args))


def test_arguments_in_containers_and_their_order():
    def summed(items, **named):
        found = [value for _, value in named.items()]
        return items[0] * found[0] - items[-1] * found[-1]

    compiled = ts.compile(summed)
    for args, kwargs in (
        (([X, X + 1],), {"a": X, "b": 2.0}),
        (((X, X + 1),), {"a": X, "b": 2.0}),
        (([X, X + 1],), {"b": X, "a": 2.0}),
        (([X, X + 1, X.double()],), {"a": X, "b": 2.0}),
        (([X.T, X[:1]],), {"a": X, "b": -0.0}),
        (([X, X + 1],), {"a": X, "b": 0.0}),
        (([X, X + 1],), {"a": X, "b": True}),
        (([X, X + 1],), {"a": X, "b": 1}),
    ):
        for _ in range(2):
            assert same(compiled(*args, **kwargs), summed(*args, **kwargs))


# --- keeping house ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [None, False, True])
def test_shapes_are_graphs_up_to_a_limit(dynamic):
    """Which is higher where sizes are said to vary."""
    net = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(2, 2), nn.ReLU())])
    compiled = ts.compile(lambda x: x * 2 + 1, dynamic=dynamic), ts.compile(net, dynamic=dynamic)
    for n in (*range(1, 15), *range(1, 15)):
        assert same(compiled[0](ts.ones(n)), ts.full((n,), 3.0))
        assert same(compiled[1](ts.ones(n, 2)), net(ts.ones(n, 2)))
    for made in (compiled[0]._compiled, compiled[1].__dict__["_compiled"]):
        assert made._count == (14 if dynamic else config["recompile_limit"])


def test_small_programs_are_run_by_python(monkeypatch):
    """Where a graph is not quicker, or cannot be measured."""
    monkeypatch.setitem(config, "smallest", 3)
    monkeypatch.setattr(compiled_module, "why_plain", lambda *given: "slow")
    compiled = ts.compile(lambda x: x * 2 + 1)
    compiled(X)
    assert compiled._compiled.plain and compiled._compiled.notes == ["it has 2 operators: slow"]
    compiled = ts.compile(lambda x: x + ts.rand(2, 2))
    compiled(X)
    assert compiled._compiled.plain and "operators" in compiled._compiled.notes[0]
    compiled = ts.compile(lambda x: x * 2 + 1, fullgraph=True)
    assert same(compiled(X), X * 2 + 1) and compiled._compiled._count == 1


def test_modules_go_when_nobody_needs_them():
    for make in (lambda net: net.compile() or net, ts.compile):
        net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        compiled, gone = make(net), weakref.ref(net)
        for _ in range(2):
            compiled(X)
        del net, compiled
        gc.collect()
        assert gone() is None


def test_parameters_and_arguments_go_with_their_graph():
    net = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(2, 2), nn.ReLU())])
    compiled, x = ts.compile(net, fullgraph=True), ts.randn(3, 2)
    for _ in range(4):
        compiled(x)
    gone = [weakref.ref(t) for t in (x, *net.parameters())]
    del net, compiled, x
    gc.collect()
    assert not [t for t in gone if t() is not None]


def test_threads_call_what_another_resets():
    net = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(4, 4), nn.ReLU())])
    given = [ts.randn(n, 4) for n in range(1, 7)]
    with ts.no_grad():
        expected = [net(x) for x in given]
    compiled, wrong, over = ts.compile(net), [], threading.Event()

    def call(first):
        try:
            with ts.no_grad():
                for k in range(20):
                    n = (first + k) % len(given)
                    if not same(compiled(given[n]), expected[n]):
                        wrong.append(n)
        except Exception as error:
            wrong.append(error)

    def forget():
        while not over.wait(0.01):
            ts.compiler.reset()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        callers = [threading.Thread(target=call, args=(k,)) for k in range(3)]
        other = threading.Thread(target=forget)
        for thread in (other, *callers):
            thread.start()
        for thread in callers:
            thread.join()
        over.set()
        other.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


@pytest.mark.parametrize("kept", [True, False])
def test_casts_of_a_region_are_shared_by_calls_as_in_plain_python(kept):
    net = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU())])
    twin, data = copy.deepcopy(net), [ts.randn(3, 4) for _ in range(3)]
    compiled = ts.compile(net, fullgraph=True)
    for first in range(4):
        for run in (compiled, twin):
            with ts.autocast("cpu", ts.bfloat16, cache_enabled=kept):
                losses = [run(data[(first + k) % 3]).float().square().mean() for k in range(3)]
            sum(losses).backward()
            with ts.no_grad():
                for p in run.parameters():
                    p.sub_(0.1 * p.grad)
        assert all(
            same(p.grad, q.grad) and same(p, q) for p, q in zip(net.parameters(), twin.parameters(), strict=True)
        )
    assert compiled._compiled._count == 1
    with ts.autocast("cpu", ts.float16):
        assert same(compiled(data[0]), twin(data[0]))
    assert compiled._compiled._count == 2


def test_compilers_get_no_graph_where_casts_are_kept():
    seen = []
    layer, x = nn.Linear(4, 4), ts.randn(3, 4)
    compiled = ts.compile(layer, backend=lambda gm, given: seen.append(gm) or gm.forward)
    grads = []
    for run in (compiled, layer):
        layer.zero_grad()
        with ts.autocast("cpu", ts.bfloat16):
            total = sum(run(x + k).float().square().sum() for k in range(3))
        total.backward()
        grads.append([p.grad.clone() for p in layer.parameters()])
    assert same(*grads) and not seen
    with ts.no_grad(), ts.autocast("cpu", ts.bfloat16):
        assert same(compiled(x), layer(x)) and len(seen) == 1


def test_traces_follow_parameters_whose_cast_was_kept():
    layer, x = nn.Linear(4, 4), ts.randn(3, 4)
    with ts.autocast("cpu", ts.bfloat16):
        layer(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = ts.jit.trace(layer, (x,), check_trace=False)
        with ts.no_grad():
            layer.weight.mul_(2)
        assert same(traced(x), layer(x))


def test_profilers_in_c_stay_where_they_are():
    compiled = ts.compile(chain)
    profile = cProfile.Profile()
    profile.enable()
    try:
        for _ in range(3):
            assert same(compiled(X), chain(X))
        if sys.version_info < (3, 12):
            assert sys.getprofile() is profile
    finally:
        profile.disable()
    assert same(compiled(X), chain(X)) and not compiled._compiled.reasons


def chain(x):
    return (((x * 2 + 1).relu() * x - 0.5).abs() + x) * 0.25 + x.sin()


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_programs_under_other_modes_run_as_python():
    compiled = ts.compile(lambda x: x.relu() * 2)
    compiled(X)
    assert ts.equal(ts.func.vmap(compiled)(X), X.relu() * 2)
    assert ts.equal(ts.func.grad(lambda x: compiled(x).sum())(X), (X > 0) * 2.0)
    traced = ts.jit.trace(lambda x: compiled(x) + 1, X, check_trace=False)
    assert same(traced(-X), (-X).relu() * 2 + 1)


def test_shapes_that_are_met_once_make_no_graphs():
    net = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU())])
    compiled, seen = ts.compile(net), []
    for length in range(1, 20):  # as of a sequence that grows
        x = ts.randn(length, 4)
        assert same(compiled(x), net(x))
    assert compiled._compiled._count == 1
    for length in (7, 7, 1):
        x = ts.randn(length, 4)
        assert same(compiled(x), net(x))
    assert compiled._compiled._count == 2
    own = ts.compile(net, backend=lambda gm, given: seen.append(gm) or gm.forward)
    for length in range(1, 4):
        own(ts.randn(length, 4))
    assert len(seen) == 3
