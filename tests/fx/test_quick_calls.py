"""Calls that a graph is at hand for, which go there without a word of Python, and those that must not."""

from __future__ import annotations

import collections
import copy
import gc
import inspect
import pickle
import weakref
from typing import Any, NamedTuple

import pytest
import tesserack as ts
import tesserack.nn.functional as F
from tesserack import compiler, nn
from tesserack.jit._compile import choice
from tesserack.jit._compile.compiled import Compiled

SCALE = 2.0


def chain(x: ts.Tensor, plus: float = 1.0) -> ts.Tensor:
    y = ((x * SCALE + plus).relu() * x - 0.5).abs()
    return ((y + x) * 0.25).sigmoid().tanh()


@ts.compile
def shared(x: ts.Tensor) -> ts.Tensor:
    return chain(x)


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
    assert str(same.value) == str(told.value) and not looked
    assert compiled(good).equal(rows(good))


def test_several_results(looked: list[Any]) -> None:
    kept = nn.Parameter(ts.ones(2))

    def several(x: ts.Tensor, k: int) -> Any:
        y = chain(x)
        return {"sum": y.sum(), "parts": [y, (y + 1, x, None)], 3: (), "kept": kept, "k": k, "same": y}

    compiled, x = ts.compile(several), ts.randn(8)
    for _ in range(4):
        compiled(x, k=2)
    looked.clear()
    got, expected = compiled(x, k=2), several(x, k=2)
    assert not looked and [*got] == [*expected]
    assert got["parts"][0] is got["same"] and got["parts"][1][1] is x and got["kept"] is kept
    leaves = [ts.utils._pytree.tree_flatten(value) for value in (got, expected)]
    assert leaves[0][1] == leaves[1][1]
    for a, b in zip(leaves[0][0], leaves[1][0], strict=True):
        assert a.equal(b) if isinstance(a, ts.Tensor) else a == b
    got["parts"].append(1)
    assert len(compiled(x, k=2)["parts"]) == 2


def test_whole_steps(looked: list[Any]) -> None:
    """With calls of Python between their graphs, and a number as the result."""
    nets = []
    for way in range(2):
        ts.manual_seed(0)
        net = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(4, 4), nn.GELU())])
        optimizer = ts.optim.AdamW(net.parameters(), lr=0.01)

        def step(x: ts.Tensor, net: Any = net, optimizer: Any = optimizer) -> float:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            return loss.item()

        run = ts.compile(step, fullgraph=True) if way else step
        ts.manual_seed(1)
        losses = [run(ts.randn(3, 4)) for _ in range(6)]
        looked.clear()
        losses.append(run(ts.randn(3, 4)))
        assert not looked and all(type(loss) is float for loss in losses)
        nets.append((losses, [*net.parameters()]))
    assert nets[0][0] == nets[1][0] and all(a.equal(b) for a, b in zip(nets[0][1], nets[1][1], strict=True))


def test_results_that_take_python_to_be_made(looked: list[Any]) -> None:
    class Pair(NamedTuple):
        first: ts.Tensor
        second: ts.Tensor

    compiled, x = ts.compile(lambda x: Pair(chain(x), x)), ts.randn(4)
    for _ in range(4):
        compiled(x)
    looked.clear()
    got = compiled(x)
    assert type(got) is Pair and got.first.equal(chain(x)) and got.second is x and looked


def test_plain_functions(looked: list[Any]) -> None:
    few, x = ts.compile(lambda x: x + 1), ts.randn(8)
    for _ in range(4):
        few(x)
    looked.clear()
    assert few(x).equal(x + 1) and not looked


@pytest.mark.parametrize("quicker", [False, True])
def test_small_graphs_are_measured(quicker: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {0: [], 1: []}

    def seconds(call: Any, args: Any, kwargs: Any, calls: int) -> float:
        taken[call is not few].append(calls)
        return 1e-6 if (call is few) == quicker else 2e-6

    monkeypatch.setattr(choice, "_seconds", seconds)
    few = lambda x: (x * 2 + 1).relu()  # noqa: E731
    compiled, x = ts.compile(few), ts.randn(8)
    for _ in range(4):
        assert compiled(x).equal(few(x))
    assert taken[0] and taken[1] and compiled._compiled.plain == quicker
    told = "\n".join(compiler.explain(compiled)(x).planned)
    assert ("Python takes 1.00 us for a call, and a graph 2.00 us" in told) == quicker
    assert ("3 operators" in told) == quicker and ("1 kernels" in told) != quicker


def test_long_calls_are_run_once_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(choice, "_seconds", lambda call, args, kwargs, calls: taken.append(calls) or 1.0)
    compiled = ts.compile(lambda x: (x * 2 + 1).relu())
    compiled(ts.randn(8))
    assert taken == [1] and not compiled._compiled.plain


def test_a_compiled_function_is_like_the_function() -> None:
    class Scaled:
        scale = 2.0

        @ts.compile
        def by(self, x: ts.Tensor, plus: float = 1.0) -> ts.Tensor:
            "Of a class."
            return chain(x * self.scale, plus=plus)

    x, scaled = ts.randn(4), Scaled()
    for _ in range(4):
        assert scaled.by(x).equal(chain(x * 2.0))
        assert Scaled.by(scaled, plus=0.0, x=x).equal(chain(x * 2.0, 0.0))
    assert Scaled.by.__name__ == "by" and Scaled.by.__doc__ == "Of a class." and Scaled.by.__defaults__ == (1.0,)
    assert [*inspect.signature(scaled.by).parameters] == ["x", "plus"]
    assert inspect.getsource(Scaled.by).strip().startswith("@ts.compile")
    assert copy.deepcopy(shared) is shared and pickle.loads(pickle.dumps(shared)) is shared
    assert repr(shared) == repr(shared.__wrapped__) and weakref.ref(shared)() is shared
    shared.mark = 3
    assert shared.mark == vars(shared)["mark"] == 3 and callable(shared) and not hasattr(shared, "other")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        shared()
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        shared(x, z=1)


def test_compiled_functions_within_others() -> None:
    @ts.compile
    def outer(x: ts.Tensor) -> ts.Tensor:
        return shared(x) + chain(x)

    x = ts.randn(4)
    for _ in range(4):
        assert outer(x).equal(chain(x) + chain(x))
    assert outer._compiled._count == 1 and not outer._compiled.plain


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


class Counting(nn.Module):
    """What it does cannot be proved by its code alone: each run is looked at, step by step."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.count, self.fails = 0, fails

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        self.count += 1
        if self.fails and self.count > 1:
            raise LookupError("as asked")
        return x * 2 + self.count


@pytest.mark.parametrize("enabled", [True, False])
def test_looking_at_a_run_leaves_the_collector_of_garbage_alone(enabled: bool) -> None:
    """A collection of all there is takes a second where a program holds millions of objects."""
    whole: list[str] = []

    def told(phase: str, about: dict[str, int]) -> None:
        if about["generation"] == 2:
            whole.append(phase)

    compiled, failing = ts.compile(Counting()), ts.compile(Counting(fails=True))
    before = gc.isenabled()
    gc.collect()
    (gc.enable if enabled else gc.disable)()
    gc.callbacks.append(told)
    try:
        assert [float(compiled(ts.tensor(1.0))) for _ in range(4)] == [3, 4, 5, 6]
        failing(ts.tensor(1.0))
        with pytest.raises(LookupError, match="as asked"):
            failing(ts.tensor(1.0))
        assert not whole and gc.isenabled() == enabled
    finally:
        gc.callbacks.remove(told)
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_mappings_of_every_length_are_looked_at(count: int, looked: list[Any]) -> None:
    """Empty ones by their length, those of one key by their version, others by their order, too."""
    table = collections.OrderedDict((str(k), k + 2.0) for k in range(count))

    def weigh(x: ts.Tensor) -> ts.Tensor:
        return sum((x * k * value for k, value in enumerate(table.values(), 2)), start=x.sin() * 2)

    compiled, x = ts.compile(weigh), ts.randn(8)
    for change in (table.clear, lambda: table.update(a=5.0), lambda: table.update(a=6.0, b=7.0, c=8.0)):
        for _ in range(4):
            assert compiled(x).equal(weigh(x))
        looked.clear()
        assert compiled(x).equal(weigh(x)) and not looked
        if len(table) > 1:
            table.move_to_end(next(iter(table)))
            assert compiled(x).equal(weigh(x)) and looked
        change()
        assert compiled(x).equal(weigh(x))
