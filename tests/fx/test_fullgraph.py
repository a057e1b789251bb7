"""``compile(fullgraph=True)``: what is one graph, what is left to Python without an error, and what is refused."""

from __future__ import annotations

import collections
import functools
import importlib.util
import itertools
import math
import operator
import random
import types
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tesserack as ts
from tesserack import nn
from tesserack.jit._compile.errors import Unsupported

from tests.fx.compiled import X

ROWS = np.arange(3, dtype=np.float32)


class Counting(nn.Module):
    """Counts its calls in a buffer, by an assignment that keeps the tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(X.shape[-1], 2)
        self.register_buffer("calls", ts.zeros(()))

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        self.calls += 1
        return self.inner(x) * self.calls


def test_an_augmented_buffer_is_a_step_of_the_graph() -> None:
    plain, module = Counting(), Counting()
    plain.load_state_dict(module.state_dict())
    compiled = ts.compile(module, fullgraph=True)
    for call in range(1, 9):
        assert compiled(X).equal(plain(X)) and module.calls.item() == call
    module.calls = ts.tensor(100.0)
    plain.calls = ts.tensor(100.0)
    assert compiled(X).equal(plain(X)) and module.calls.item() == 101
    told = ts.compiler.explain(Counting())(X)
    assert told.graph_count == 1, told


class Keeping(nn.Module):
    """Sets attributes of itself in every way."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.last, self.seen, self.by_name = 0, None, [], {}
        self.register_buffer("mean", ts.zeros(X.shape[-1]))

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        self.count += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.last = x * self.count
        self.seen.append(self.last)
        self.by_name["last"] = self.last
        return self.last - self.mean


def test_attributes_that_change_are_pythons() -> None:
    plain, module = Keeping(), Keeping()
    compiled = ts.compile(module, fullgraph=True)
    for call in range(1, 9):
        x = X + call
        assert compiled(x).equal(plain(x)) and module.mean.equal(plain.mean)
        assert module.count == call == len(module.seen) and module.by_name["last"] is module.last


_counted = 0


def in_a_global(x: ts.Tensor) -> ts.Tensor:
    global _counted
    _counted += 1
    return x * _counted


def around() -> Callable[[ts.Tensor], ts.Tensor]:
    calls, seen = 0, []

    def inside(x: ts.Tensor) -> ts.Tensor:
        nonlocal calls
        calls += 1
        seen.append(calls)
        return x * len(seen) + calls

    return inside


def cached() -> Callable[[ts.Tensor], ts.Tensor]:
    scale = functools.lru_cache(None)(math.sqrt)
    return lambda x: x / scale(x.shape[-1])


def of_collections(x: ts.Tensor) -> ts.Tensor:
    last: collections.deque[ts.Tensor] = collections.deque(maxlen=2)
    found = collections.defaultdict(list)
    for a, b in itertools.product((1, 2), (3, 4)):
        last.append(x * a + b)
        found[a].append(last[-1])
    return last[0] + last[1] + ts.stack(found[1]).sum(0)


def of_numpy(x: ts.Tensor) -> ts.Tensor:
    return x[:, :1] + ts.from_numpy(ROWS)


@pytest.mark.parametrize(
    "make",
    [around, cached, lambda: of_collections, lambda: of_numpy],
    ids=["closures", "caches", "collections", "numpy"],
)
def test_what_python_keeps_is_no_error(make: Callable[[], Callable[[ts.Tensor], ts.Tensor]]) -> None:
    plain, compiled = make(), ts.compile(make(), fullgraph=True)
    for call in range(8):
        assert compiled(X + call).equal(plain(X + call))


def test_globals_that_change() -> None:
    compiled = ts.compile(in_a_global, fullgraph=True)
    before = _counted
    assert [compiled(ts.ones(1)).item() for _ in range(8)] == [before + k for k in range(1, 9)]


def test_functions_of_a_module_that_is_imported_where_the_function_is_made() -> None:
    made = types.ModuleType("made_here")
    made.__dict__.update(first=lambda x: x.sin(), second=lambda x: x.cos() * 2)

    def both(x: ts.Tensor) -> ts.Tensor:
        return made.second(made.first(x))

    compiled = ts.compile(both, fullgraph=True)
    assert all(compiled(X).equal(both(X)) for _ in range(3))


def test_what_no_graph_of_pytorch_follows_is_refused() -> None:
    def prints(x: ts.Tensor) -> ts.Tensor:
        print(x.shape)
        return x + 1

    with pytest.raises(Unsupported, match=r"calls print.*leave fullgraph out"):
        ts.compile(prints, fullgraph=True)(X)


@pytest.mark.parametrize("folder", ["plain", "who writes this", "what sets the attribute of"])
def test_a_refusal_does_not_depend_on_the_name_of_a_folder(folder: str, tmp_path: Path) -> None:
    file = tmp_path / folder / "printing.py"
    file.parent.mkdir()
    file.write_text("def f(x):\n    class Local: pass\n    print(end='')\n    return x + 1\n")
    spec = importlib.util.spec_from_file_location("printing", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(Unsupported, match="fullgraph=True"):
        for _ in range(3):
            ts.compile(module.f, fullgraph=True)(ts.ones(2))


def _under_inference(x: ts.Tensor) -> ts.Tensor:
    with ts.inference_mode():
        y = x.sin()
    return y * 1


def _recorded(x: ts.Tensor) -> ts.Tensor:
    with ts.profiler.record_function("a"):
        return x.sin()


@pytest.mark.parametrize(
    "function",
    [
        _under_inference,
        _recorded,
        lambda x: (x.sin(), x.is_leaf),
        lambda x: x.sin() if x.grad is None else x,
        lambda x: (x.sin(), x._version),
        lambda x: x.sin() * ts.are_deterministic_algorithms_enabled(),
        lambda x: x.sin() * operator.itemgetter(1)([1, 2]),
        lambda x: collections.namedtuple("T", "a b")(x.sin(), 1).a,
        lambda x: x.sin() * random.uniform(0, 1),
        lambda x: x.sin() * (id(x) == id(x)),
    ],
)
def test_what_graphs_of_pytorch_take_runs_as_python(function: Callable[[ts.Tensor], ts.Tensor]) -> None:
    compiled = ts.compile(function, fullgraph=True)
    for _ in range(7):
        random.seed(1)
        found = compiled(X)
        random.seed(1)
        ts.testing.assert_close(found, function(X))


@pytest.mark.filterwarnings("ignore:told")
def test_a_function_that_warns_is_refused_at_once() -> None:
    def warns(x: ts.Tensor) -> ts.Tensor:
        warnings.warn("told", stacklevel=1)
        return x.sin()

    compiled = ts.compile(warns, fullgraph=True)
    for _ in range(3):
        with pytest.raises(Unsupported, match="warns"):
            compiled(X)


def test_a_disabled_function_is_not_told_that_a_graph_is_made() -> None:
    seen = []

    @ts.compiler.disable
    def inner(x: ts.Tensor) -> ts.Tensor:
        seen.append(ts.compiler.is_compiling())
        return x + 1

    compiled = ts.compile(lambda x: inner(x.sin()) * 2)
    for _ in range(4):
        compiled(X)
    assert seen == [False] * 4
