"""Single calls in which libraries differ, beside PyTorch's: values, dtypes and refusals."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import tesserack as ts
import torch


def shown(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [shown(item) for item in value]
    if hasattr(value, "tolist"):
        return repr(value.tolist()), str(value.dtype).rpartition(".")[2], tuple(value.shape)
    return value


def out_of_a_view(m):
    base = m.zeros(4)
    part = base[:2]
    m.add(m.ones(4), 1, out=part)
    return [part, base]


def late_requires_grad(m):
    (m.ones(3, requires_grad=True) * 2).requires_grad_(False)


def gradient_of_an_empty_write(m):
    x = m.ones(3, requires_grad=True)
    y = x.clone()
    y[m.zeros(0, dtype=m.int64)] = m.zeros(0)
    y.sum().backward()
    return x.grad


def gradients_of_ties(m):
    x, y = m.tensor([1.0, 2.0], requires_grad=True), m.tensor([1.0, 3.0], requires_grad=True)
    (m.fmax(x, y) + 2 * m.fmin(x, y)).sum().backward()
    return [x.grad, y.grad]


def resized_view(m):
    view = m.arange(6.0)[:2]
    return [view.resize_(4), view.stride()]


def pick(m, *values, dtype="int64"):
    return m.tensor(list(values), dtype=getattr(m, dtype))


CALLS = {
    "kthvalue": lambda m: m.kthvalue(m.arange(24.0).reshape(2, 3, 4), 2, 1)[0].stride(),
    "kthvalue kept": lambda m: list(m.kthvalue(m.arange(24.0).reshape(2, 3, 4), 2, 1, True)),
    "any of no dims": lambda m: m.any(m.tensor([[True, False]]), dim=[]),
    "all of no dims": lambda m: m.all(m.tensor([[True, False]]), dim=[]),
    "view of a tracked tensor": lambda m: m.ones(2, requires_grad=True).view(m.int32).requires_grad,
    "median of nothing": lambda m: m.median(m.empty(0)),
    "median of no rows": lambda m: list(m.median(m.empty(0, 3), 1)),
    "median along nothing": lambda m: list(m.median(m.empty(0, 3), 0)),
    "median of no integers": lambda m: m.median(m.empty(0, dtype=m.int64)),
    "unique": lambda m: m.unique(m.tensor([[2, 1], [1, 2]]), return_inverse=True, return_counts=True),
    "unique of nothing": lambda m: m.unique(m.empty(0), return_inverse=True, return_counts=True),
    "unique of a number": lambda m: m.unique(m.tensor(3), return_inverse=True),
    "tensordot broadcasts 1": lambda m: m.tensordot(m.ones(2, 1), m.ones(3, 2), ([1], [0])),
    "einsum broadcasts 1": lambda m: m.einsum("ij,jk->ik", m.ones(2, 1), m.ones(3, 2)),
    "negative index along": lambda m: m.take_along_dim(m.arange(6).reshape(2, 3), m.tensor([[-1], [0]]), 1),
    "copy of a number": lambda m: m.zeros(2, 2).copy_(3),
    "split at indices": lambda m: m.tensor_split(m.arange(7), pick(m, 1, 3)),
    "split in sections": lambda m: m.tensor_split(m.arange(7), m.tensor(3)),
    "split at a negative": lambda m: m.tensor_split(m.arange(7), pick(m, -2)),
    "split at floats": lambda m: m.tensor_split(m.arange(7), pick(m, 1, dtype="float32")),
    "split at a matrix": lambda m: m.tensor_split(m.arange(7), m.tensor([[1]])),
    **{f.__name__: f for f in (out_of_a_view, late_requires_grad, gradient_of_an_empty_write, gradients_of_ties)},
    "resized_view": resized_view,
}
VALUES = (0.0, -0.0, 1.0, -1.0, 2.5, math.inf, -math.inf, math.nan)
GRID = [[a for a in VALUES for _ in VALUES], [b for _ in VALUES for b in VALUES]]
CALLS |= {
    f"{name} at infinities": lambda m, name=name: getattr(m, name)(*(m.tensor(c, dtype=m.float64) for c in GRID))
    for name in ("atan2", "floor_divide", "remainder", "fmod")
}


def result(m: Any, call: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, of resized outputs
        try:
            return shown(call(m))
        except Exception as error:
            return type(error).__name__


@pytest.mark.parametrize("name", CALLS)
def test_same(name):
    assert result(ts, CALLS[name]) == result(torch, CALLS[name])
