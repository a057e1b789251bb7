"""Random index expressions and chains of views on both libraries: values, shapes, strides, offsets, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import tesserack as ts
import torch
from hypothesis import given, settings

SETTINGS = settings(max_examples=400, deadline=None)
SHAPES = st.lists(st.integers(0, 4), min_size=0, max_size=4)


def both(shape: list[int]) -> tuple[Any, Any]:
    """The same numbers as tensors of both libraries."""
    numbers = np.arange(np.prod(shape, dtype=int), dtype=np.int64).reshape(shape)
    return ts.tensor(numbers.tolist(), dtype=ts.int64).reshape(shape), torch.tensor(numbers)


def outcome(call: Callable[[], Any]) -> Any:
    """The result, or the exception."""
    try:
        return call()
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return error


def same(ours: Any, theirs: Any, what: str, layout: bool = True) -> None:
    if isinstance(theirs, Exception):
        assert isinstance(ours, Exception), f"{what}: {ours}, but PyTorch says {theirs!r}"
        return
    if isinstance(ours, IndexError) and not theirs.numel():
        return  # PyTorch looks at positions only when there is something to copy
    assert not isinstance(ours, Exception), f"{what}: {ours!r}"
    assert tuple(ours.shape) == tuple(theirs.shape), what
    assert ours.tolist() == theirs.tolist(), what
    if layout and ours.numel():
        assert places(ours) == places(theirs), what


def places(tensor: Any) -> Any:
    """Offset, and strides where they matter."""
    return tensor.storage_offset(), [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]


@st.composite
def indices(draw: st.DrawFn, shape: list[int]) -> Any:
    """An index expression, mostly valid, for a tensor of this shape; lists stand for index and mask tensors."""
    items: list[Any] = []
    at = 0
    for _ in range(draw(st.integers(0, len(shape) + 2))):
        kind = draw(st.sampled_from(["int", "slice", "slice", "none", "ellipsis", "tensor", "mask", "bool"]))
        size = shape[at] if at < len(shape) else 1
        if kind == "int":
            items.append(draw(st.integers(-size - (size == 0), max(size - 1, 0))))
        elif kind == "slice":
            bound = st.none() | st.integers(-6, 6)
            items.append(slice(draw(bound), draw(bound), draw(st.none() | st.integers(1, 3))))
        elif kind == "tensor":
            values = st.integers(-size, size - 1) if size else st.just(0)
            rank = draw(st.integers(0, 2))
            sizes = [draw(st.integers(0 if rank == 1 else 1, 3)) for _ in range(rank)]
            count = int(np.prod(sizes, dtype=int))
            items.append(
                np.array(draw(st.lists(values, min_size=count, max_size=count)), dtype=np.int64).reshape(sizes)
            )
        elif kind == "mask":
            items.append(np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=bool))
        else:
            items.append({"none": None, "ellipsis": ..., "bool": draw(st.booleans())}[kind])
        at += kind in ("int", "slice", "tensor", "mask")
    if sum(item is ... for item in items) > 1:
        items = [item for item in items if item is not ...]
    return tuple(items)


@st.composite
def indexed(draw: st.DrawFn) -> tuple[list[int], Any]:
    shape = draw(SHAPES)
    return shape, draw(indices(shape))


def convert(index: Any, make: Callable[[Any], Any]) -> Any:
    return tuple(make(i) if isinstance(i, np.ndarray) else i for i in index)


def our_tensor(array: Any) -> Any:
    return ts.tensor(array.tolist(), dtype=ts.bool if array.dtype == bool else ts.int64).reshape(array.shape)


@SETTINGS
@given(indexed())
def test_read(case: tuple[list[int], Any]) -> None:
    """x[index]."""
    shape, index = case
    ours, theirs = both(shape)
    basic = not any(isinstance(i, np.ndarray | bool) for i in index)
    found = outcome(lambda: ours[convert(index, our_tensor)])
    same(found, outcome(lambda: theirs[convert(index, torch.tensor)]), f"{shape}[{index}]", layout=basic)


@SETTINGS
@given(indexed(), st.booleans())
def test_write(case: tuple[list[int], Any], scalar: bool) -> None:
    """x[index] = value, a number or a tensor of the shape that reading gives."""
    shape, index = case
    ours, theirs = both(shape)
    selected = outcome(lambda: theirs[convert(index, torch.tensor)])
    count = 1 if scalar or isinstance(selected, Exception) else selected.numel()
    flat = [i for i in index if isinstance(i, np.ndarray)]
    if not scalar and flat and not isinstance(selected, Exception) and selected.unique().numel() != count:
        scalar = True  # which of the values wins is not defined where positions repeat
    value = -1 if scalar or isinstance(selected, Exception) else list(range(-count, 0))

    def write(module: Any, tensor: Any, make: Callable[[Any], Any]) -> Any:
        if isinstance(value, int):
            tensor[convert(index, make)] = value
        else:
            tensor[convert(index, make)] = module.tensor(value, dtype=module.int64).reshape(tuple(selected.shape))
        return tensor

    found, expected = outcome(lambda: write(ts, ours, our_tensor)), outcome(lambda: write(torch, theirs, torch.tensor))
    if isinstance(found, IndexError) and not isinstance(selected, Exception) and not selected.numel():
        return  # as in reading: nothing is written, and PyTorch looks at no position
    same(found, expected, f"{shape}[{index}] = {value}")


View = tuple[str, Callable[[Any], Any]]


@st.composite
def views(draw: st.DrawFn) -> tuple[list[int], list[View]]:
    """A shape and view operations, most of which fit."""
    shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    chain: list[View] = []
    for _ in range(draw(st.integers(1, 5))):
        a, b, n = draw(st.integers(-3, 2)), draw(st.integers(-3, 2)), draw(st.integers(0, 4))
        sizes = draw(st.lists(st.sampled_from([-1, 1, 2, 3, 4, 6, 12]), max_size=3))
        start, step = draw(st.integers(-4, 4)), draw(st.integers(1, 3))
        order = draw(st.permutations(range(draw(st.integers(0, 3)))))
        ops: list[View] = [
            (f"view({sizes})", lambda t, s=sizes: t.view(s)),
            (f"reshape({sizes})", lambda t, s=sizes: t.reshape(s)),
            (f"transpose({a}, {b})", lambda t, a=a, b=b: t.transpose(a, b)),
            (f"permute({order})", lambda t, o=order: t.permute(o)),
            (f"slice({start}::{step})", lambda t, s=start, k=step: t[..., s::k]),
            (f"select({a}, {b})", lambda t, a=a, b=b: t.select(a, b)),
            (f"narrow({a}, {n}, 1)", lambda t, a=a, n=n: t.narrow(a, n, 1)),
            (f"unsqueeze({a})", lambda t, a=a: t.unsqueeze(a)),
            (f"squeeze({a})", lambda t, a=a: t.squeeze(a)),
            ("expand(2, *)", lambda t: t.expand(2, *t.shape)),
            (f"unfold({a}, {n}, {step})", lambda t, a=a, n=n, k=step: t.unfold(a, n, k)),
            (f"diagonal({n - 2}, {a}, {b})", lambda t, a=a, b=b, n=n: t.diagonal(n - 2, a, b)),
            (f"flatten({a}, {b})", lambda t, a=a, b=b: t.flatten(a, b)),
            (f"movedim({a}, {b})", lambda t, a=a, b=b: t.movedim(a, b) if t.ndim else t),
            (f"as_strided({sizes})", lambda t, n=n: t.as_strided((2,), (n,)) if t.numel() else t),
            ("contiguous", lambda t: t.contiguous()),
        ]
        chain.append(draw(st.sampled_from(ops)))
    return shape, chain


@SETTINGS
@given(views())
def test_view_chains(case: tuple[list[int], list[View]]) -> None:
    """Each step agrees, in its layout too, until one is refused, by both."""
    shape, chain = case
    ours, theirs = both(shape)
    told = f"{shape}"
    for name, step in chain:
        told += f".{name}"
        found, expected = outcome(lambda: step(ours)), outcome(lambda: step(theirs))  # noqa: B023
        same(found, expected, told)
        if isinstance(expected, Exception):
            break
        ours, theirs = found, expected
        assert ours.is_contiguous() == theirs.is_contiguous(), told
