"""What is written or read by slices and elements at an index: 0-d, empty, one-element and too long ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts

SHAPES = [(), (0,), (1,), (3,), (1, 1), (2, 3), (0, 3)]
INDICES = [0, [], [0], [0, 0], [1], [5], [0] * 5, [[0]], [[0] * 3] * 2]
ANSWERS = (RuntimeError, IndexError)


def _filled(shape: tuple[int, ...], first: float, device: ts.device) -> ts.Tensor:
    return ts.arange(float(np.prod(shape, dtype=int)), device=device).add(first).reshape(shape)


def _expected(x: Any, dim: int, index: Any, source: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """The slices one by one, or None where they do not fit."""
    if index.ndim > 1 or x.ndim != source.ndim:
        return None
    if not x.ndim:
        return combine(x, source) if index.size == 1 and not index.any() else None
    out, at = x.copy(), index.reshape(-1)
    shape = list(x.shape)
    shape[dim] = at.size
    inside = (at >= 0) & (at < x.shape[dim])
    # Of slices without elements only the size of the dim counts.
    if list(source.shape) != shape or (source.size and not inside.all()):
        return None
    whole: list[Any] = [slice(None)] * x.ndim
    for k, place in enumerate(at if source.size else []):
        to, of = list(whole), list(whole)
        to[dim], of[dim] = place, k
        out[tuple(to)] = combine(out[tuple(to)], source[tuple(of)])
    return out


WAYS: dict[str, tuple[Callable[..., Any], Callable[[Any, Any], Any]]] = {
    "add": (lambda x, d, i, s: x.index_add(d, i, s), lambda a, b: a + b),
    "add_": (lambda x, d, i, s: x.index_add_(d, i, s), lambda a, b: a + b),
    "out": (lambda x, d, i, s: ts.index_add(x, d, i, s, out=ts.empty_like(x)), lambda a, b: a + b),
    "prod": (lambda x, d, i, s: x.index_reduce(d, i, s, "prod"), lambda a, b: a * b),
    "amax": (lambda x, d, i, s: x.index_reduce_(d, i, s, "amax"), np.maximum),
}


@pytest.mark.parametrize("way", WAYS)
def test_slices_of_every_size(way: str, device: ts.device) -> None:
    """The sum of what NumPy does slice by slice, or an error: never a read beyond what is there."""
    call, combine = WAYS[way]
    sources = [*SHAPES, (2,), (5,), (5, 3), (2, 1), (2, 5)]
    for shape, index, source in itertools.product(SHAPES, INDICES, sources):
        at = np.array(index, dtype=np.int64)
        for dim in range(max(len(shape), 1)):
            x, s = _filled(shape, 20, device), _filled(source, 3, device)
            want = _expected(
                np.array(x.tolist()).reshape(shape), dim, at, np.array(s.tolist()).reshape(source), combine
            )
            case = (shape, dim, index, source)
            if want is None:
                with pytest.raises(ANSWERS):
                    pytest.fail(f"{case}: {call(x, dim, ts.tensor(at, device=device), s)}")
            else:
                got = call(x, dim, ts.tensor(at, device=device), s)
                np.testing.assert_array_equal(np.array(got.tolist()).reshape(shape), want, str(case))


def test_index_add_of_nothing_dims_has_one_index(device: ts.device) -> None:
    """A 0-d tensor has one slice."""
    x, source = ts.tensor(20.0, device=device), ts.tensor(3.0, device=device)
    empty = ts.empty(0, dtype=ts.int64, device=device)
    for call, kind in ((x.index_add, RuntimeError), (x.index_add_, RuntimeError), (x.index_copy_, IndexError)):
        with pytest.raises(kind, match="Number of indices"):
            call(-1, empty, source)
    assert x.index_add(-1, ts.tensor([0], device=device), source).item() == 23
    assert x.index_copy(0, ts.tensor(0, device=device), source.reshape(1)).item() == 3
    assert x.index_fill(0, empty, 7.0).item() == 20
    assert x.index_fill(0, ts.tensor([0, 0], device=device), 7.0).item() == 7


@pytest.mark.parametrize("name", ["scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce"])
def test_a_number_as_index_needs_a_source(name: str, device: ts.device) -> None:
    """One index reads one element, which an empty source lacks."""
    extra = ("sum",) if name == "scatter_reduce" else ()
    at, empty = ts.tensor(0, device=device), ts.empty(0, device=device)
    for x in (ts.tensor(20.0, device=device), ts.ones(1, device=device)):
        with pytest.raises(RuntimeError, match="no larger"):
            getattr(x, name)(0, at, empty, *extra)
    grown = getattr(ts.tensor(20.0, device=device), name)(0, at, ts.ones(1, device=device), *extra)
    assert grown.item() == (21 if name not in ("scatter", "scatter_") else 1)


def test_gradients_at_the_edges(device: ts.device) -> None:
    """A 0-d tensor, no index, and one of every kind."""
    for shape, index, dim in (((), [0], 0), ((3,), [], 0), ((2, 3), [1], 1), ((1,), [0], 0)):
        x = ts.ones(shape, device=device, requires_grad=True)
        at = ts.tensor(np.array(index, np.int64), device=device)
        sizes = list(shape)
        if shape:
            sizes[dim] = len(index)
        s = ts.ones(sizes, device=device, requires_grad=True)
        (2 * x.index_add(dim, at, s, alpha=3)).sum().backward()
        assert x.grad is not None and s.grad is not None
        assert x.grad.shape == x.shape and s.grad.shape == s.shape
        assert (x.grad == 2).all() and (s.grad == 6).all()


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_reducing_at_no_index_keeps_the_source_in_the_graph(reduce: str, include_self: bool, device: ts.device) -> None:
    """Messages along no edges still get a gradient of zeros."""
    kept = {"include_self": include_self}
    none = ts.empty(0, dtype=ts.int64, device=device)
    for shape, index in (((3,), none), ((3, 4), none.view(0, 4)), ((3, 4), none), ((), none)):
        s = ts.ones((0, *shape[1:]) if shape else (), device=device, requires_grad=True)
        y = ts.ones(shape, device=device).scatter_reduce(0, index, s, reduce, **kept)
        y.sum().backward()
        assert s.grad is not None and s.grad.shape == s.shape and not s.grad.any() and (y == 1).all()
        if shape and index.ndim == 1 and reduce != "sum":
            s.grad = None
            ts.ones(shape, device=device).index_reduce(0, index, s, reduce, **kept).sum().backward()
            assert s.grad is not None


def test_a_factor_of_whole_numbers_is_whole():
    x, index, source = ts.ones(3, dtype=ts.int64), ts.tensor([0, 1]), ts.tensor([3, 5])
    assert x.index_add(0, index, source, alpha=2.0).tolist() == [7, 11, 1]
    assert x.index_add(0, index, source, alpha=2.5).tolist() == [7, 11, 1]
    x.index_add_(0, index, source, alpha=-1.0)
    assert x.tolist() == [-2, -4, 1]
    truths = ts.zeros(3, dtype=ts.bool)
    assert truths.index_add(0, index, ts.tensor([True, False]), alpha=2.5).tolist() == [True, False, False]
    for alpha in (float("inf"), float("nan"), -1e300):
        with pytest.raises(RuntimeError, match="expected an alpha that fits int64"):
            x.index_add(0, index, source, alpha=alpha)
    for values in (x, x.float()):
        with pytest.raises(RuntimeError, match="expected a real alpha"):
            values.index_add(0, index, source.to(values.dtype), alpha=1j)
