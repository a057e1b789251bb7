"""``compile(fullgraph=True)``: what is one graph, what is left to Python without an error, and what is refused."""

from __future__ import annotations

import collections
import functools
import importlib.util
import itertools
import math
import types
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
