"""What ``fullgraph=True`` takes as PyTorch does, for a compiler that a program brings along and for our own."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack import distributed as dist
from tesserack.jit._compile.errors import Unsupported

from tests.fx.compiled import Backend

NUMBERS = [1.0, 2.0]


def made_of_numbers(x):
    return x + ts.tensor(NUMBERS) * ts.tensor(3) + ts.as_tensor([0.5, 0.25])


def copied(x):
    return ts.tensor(x) * 2 + x


def without_gradients(x):
    with ts.no_grad():
        scale = x.sum() * 2
    return x * scale


@ts.no_grad()
def decorated(x):
    return (x * 2).sin()


def by_class_methods(x):
    parts = dict.fromkeys(["a", "b"], x)
    for k in itertools.chain.from_iterable([[1, 2], [3]]):
        parts["a"] = parts["a"] * k + int.from_bytes(b"\x01", "big")
    return parts["a"] + parts["b"]


CAPTURED = (made_of_numbers, without_gradients, decorated, by_class_methods)


@pytest.mark.parametrize("function", CAPTURED, ids=lambda f: f.__name__)
def test_a_compiler_gets_one_graph_of_it(function):
    backend = Backend()
    compiled = ts.compile(function, backend=backend, fullgraph=True)
    for k in range(4):
        x = ts.full((2,), 1.0 + k)
        assert compiled(x).equal(function(x))
    assert len(backend.graphs) == 1


def test_numbers_in_a_graph_follow_what_they_are_made_of(monkeypatch):
    backend = Backend()
    compiled = ts.compile(made_of_numbers, backend=backend, fullgraph=True)
    x = ts.ones(2)
    for numbers in ([1.0, 2.0], [5.0, 2.0], [1.0, 2.0]):
        monkeypatch.setitem(globals(), "NUMBERS", numbers)
        assert compiled(x).equal(made_of_numbers(x))


def test_what_is_written_to_a_constant_is_not_there_in_the_next_run():
    def function(x):
        made = ts.tensor([1.0, 2.0])
        made.add_(1)
        return x + made

    compiled = ts.compile(function, backend=Backend(), fullgraph=True)
    assert [compiled(ts.zeros(2)).tolist() for _ in range(3)] == [[2.0, 3.0]] * 3


@pytest.mark.parametrize("backend", [None, Backend])
@pytest.mark.parametrize("function", [without_gradients, decorated], ids=lambda f: f.__name__)
def test_gradients_stop_where_they_are_switched_off(function, backend):
    given = {} if backend is None else {"backend": backend()}
    compiled = ts.compile(function, fullgraph=True, **given)
    for _ in range(4):
        found = []
        for call in (function, compiled):
            x = ts.tensor([1.0, 2.0], requires_grad=True)
            result = call(x)
            if result.requires_grad:
                result.sum().backward()
            found.append((result.tolist(), result.requires_grad, None if x.grad is None else x.grad.tolist()))
        assert found[0] == found[1]


@pytest.mark.parametrize("backend", [None, Backend])
def test_a_run_that_leaves_gradients_switched_off_does_so_each_time(backend):
    def function(x):
        ts.set_grad_enabled(False)
        return x + 1

    given = {} if backend is None else {"backend": backend()}
    compiled = ts.compile(function, fullgraph=True, **given)
    try:
        for _ in range(4):
            ts.set_grad_enabled(True)
            compiled(ts.ones(2))
            assert not ts.is_grad_enabled()
    finally:
        ts.set_grad_enabled(True)


@pytest.mark.parametrize("backend", [None, Backend])
def test_a_tensor_made_of_tensors_is_a_step(backend):
    given = {} if backend is None else {"backend": backend()}
    compiled = ts.compile(lambda x: ts.tensor([x[0], x.sum()]) * 2, fullgraph=True, **given)
    assert [compiled(ts.tensor([1.0, k])).tolist() for k in (2.0, 3.0)] == [[2.0, 6.0], [2.0, 8.0]]


@pytest.mark.filterwarnings("ignore:To copy construct")
@pytest.mark.parametrize("backend", [None, Backend])
def test_a_tensor_made_of_a_tensor_is_a_step(backend):
    given = {} if backend is None else {"backend": backend()}
    compiled = ts.compile(copied, fullgraph=True, **given)
    for k in range(3):
        x = ts.full((2,), float(k), requires_grad=True)
        result = compiled(x)
        result.sum().backward()
        assert result.tolist() == [3.0 * k] * 2
        assert x.grad.tolist() == [1.0] * 2  # none through the copy


READ = {
    "item": lambda x: x * x.sum().item(),
    "float": lambda x: x + float(x.sum()),
    "list": lambda x: x * x.tolist()[0],
    "nonzero": lambda x: x.nonzero() + 1,
    "mask": lambda x: x[x > 1] * 2,
    "unique": lambda x: ts.unique(x),
    "scalar": lambda x: x.clone().addcmul_(x, x, value=x[0]),
    "numpy": lambda x: x + np.iinfo(np.int16).max,
}


@pytest.mark.parametrize("name", READ)
def test_values_and_sizes_by_values_are_no_error(name):
    function = READ[name]
    compiled = ts.compile(function, backend=Backend(), fullgraph=True)
    for k in range(7):
        x = ts.tensor([1.0 + k, 0.0, 2.0, 2.0])
        assert compiled(x).equal(function(x))


def test_random_numbers_and_sizes_by_values_are_no_error():
    def function(x):
        return ts.dropout(x, 0.5, True)[x > 1]

    compiled = ts.compile(function, fullgraph=True)
    for k in range(7):
        assert compiled(ts.full((3,), float(k))).shape == ((3,) if k > 1 else (0,))


ASSERTED = """
def asserted(x):
    assert x.sum() > 0, "too small"
    return x * 2
"""  # as Python compiles it: in this file pytest does


def test_what_is_asserted_of_values_is_asserted_in_every_call():
    made: dict[str, Any] = {"ts": ts}
    exec(ASSERTED, made)
    compiled = ts.compile(made["asserted"], backend=Backend(), fullgraph=True)
    for _ in range(3):
        assert compiled(ts.ones(2)).tolist() == [2.0, 2.0]
        with pytest.raises(AssertionError, match="too small"):
            compiled(-ts.ones(2))


@pytest.mark.parametrize("function", [lambda x: x * 2 if x.sum() > 0 else x, lambda x: x if not x.all() else x + 1])
def test_a_branch_by_values_is_refused(function):
    with pytest.raises(Unsupported, match="hands out values"):
        ts.compile(function, backend=Backend(), fullgraph=True)(ts.ones(2))


RETURNED = {
    "set": lambda x: [{1, 2}, x + 1],
    "map": lambda x: map(ts.sin, [x, x + 1]),
    "zip": lambda x: zip([x], [x + 1], strict=True),
    "enumerate": lambda x: enumerate([x, x * 2]),
    "iterator": lambda x: iter([x, x * 2]),
    "generator": lambda x: (x * k for k in range(2)),
    "chain": lambda x: itertools.chain([x], [x + 1]),
}


def _plainly(value):
    if isinstance(value, ts.Tensor):
        return value.tolist()
    return value if isinstance(value, (int, set)) else [_plainly(item) for item in value]


@pytest.mark.parametrize("backend", [None, Backend])
@pytest.mark.parametrize("name", RETURNED)
def test_what_is_gone_through_once_may_be_returned(name, backend):
    given = {} if backend is None else {"backend": backend()}
    compiled = ts.compile(RETURNED[name], fullgraph=True, **given)
    for k in range(7):
        x = ts.full((2,), float(k))
        assert _plainly(compiled(x)) == _plainly(RETURNED[name](x))


def test_a_function_may_be_returned():
    def function(x):
        return lambda y: y * x

    compiled = ts.compile(function, fullgraph=True)
    assert [compiled(ts.full((1,), float(k)))(ts.ones(1)).item() for k in range(7)] == [float(k) for k in range(7)]


@pytest.mark.parametrize("backend", [None, Backend])
def test_ranks_are_read_anew(backend):
    def function(x):
        if dist.is_available() and dist.is_initialized():
            return x * dist.get_world_size() + dist.get_rank()
        return x - 1

    given = {} if backend is None else {"backend": backend()}
    compiled = ts.compile(function, fullgraph=True, **given)
    x = ts.ones(2)
    for rank in (None, 1, None, 0):
        if rank is not None:
            dist.init_process_group("fake", rank=rank, world_size=2)
        try:
            assert [compiled(x)[0].item() for _ in range(2)] == [0.0 if rank is None else 2.0 + rank] * 2
        finally:
            if rank is not None:
                dist.destroy_process_group()
    assert compiled._compiled._count == 3 and not compiled._compiled.plain


LEAVES = {
    "tensor": lambda x: ts.tensor([1.0, 2.0], requires_grad=True),
    "zeros": lambda x: ts.zeros(2, requires_grad=True),
    "randn": lambda x: ts.randn(2, requires_grad=True),
    "parameter": lambda x: ts.nn.Parameter(ts.ones(2)),
}


@pytest.mark.parametrize("name", LEAVES)
@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_leaf_made_in_the_run_requires_gradients_in_every_run(name, fullgraph):
    def function(x):
        leaf = LEAVES[name](x)
        return x * leaf, [leaf]

    compiled = ts.compile(function, fullgraph=fullgraph)
    for k in range(4):
        result, (leaf,) = compiled(ts.full((2,), 2.0 + k))
        result.sum().backward()
        assert leaf.is_leaf and leaf.grad.tolist() == [2.0 + k] * 2


class Named(ts.Tensor):
    """Tells of each call."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Named.calls += 1
        return super().__torch_function__(func, types, args, kwargs)


@pytest.mark.parametrize("backend", [None, Backend])
def test_tensors_of_classes_of_the_programs_own_are_no_error(backend):
    given = {} if backend is None else {"backend": backend()}
    compiled = ts.compile(lambda x: x.sin() * 2, fullgraph=True, **given)
    for k in range(7):
        plain = ts.full((2,), float(k))
        x, before = plain.as_subclass(Named), Named.calls
        result = compiled(x)
        assert type(result) is Named and Named.calls > before
        assert compiled(plain).equal(plain.sin() * 2)
    sparse = ts.eye(2).to_sparse()
    assert all(compiled(sparse).to_dense().equal(ts.eye(2).sin() * 2) for _ in range(7))
