"""Small corners of the API, each as one program: what a list means as an index, what a keyword may be called."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


def lists_as_indices(m: Any) -> Any:
    x = m.arange(24).reshape(2, 3, 4)
    one, two = m.tensor([0]), m.tensor([1])
    read = [x[[[0, 1], [1, 0]]], x[[0, [1, 0]]], x[[one, two]], x[[slice(0, 1), 1]], x[[None, 1]], x[[[0, 1]]]]
    read += [x[[..., 0]], x[[m.tensor(0)]], x[[(0, 1), (0, 1)]], x[[0, 1]], x[[True, False]], x[[]]]
    x[[[0, 1], [1, 0]]] = 99
    return [*read, x]


def writes_under_masks_cast(m: Any) -> Any:
    x = m.zeros(2, 3)
    x[m.tensor([True, False])] = m.tensor(2)
    x[:, m.tensor([True, False, False])] = m.tensor([3])
    x[[1]] = 7
    return x


def one_element_tensors_are_numbers(m: Any) -> Any:
    one, two = m.tensor([1]), m.tensor([[2.5]])
    lists = [[one, two], [1, two], [one, 3], [[one], [two]], [m.tensor(1), m.tensor(2)]]
    return [m.tensor(values) for values in lists] + [m.tensor(one)]


def keywords(m: Any) -> Any:
    x = m.arange(6.0).reshape(2, 3)
    parts = [*m.split(tensor=x, split_size_or_sections=2, dim=1), *m.split(x, split_size_or_sections=[1, 2], dim=1)]
    return [*parts, m.swapaxes(x, axis0=0, axis1=1)]


def backward_twice_where_nothing_is_kept(m: Any) -> Any:
    x = m.ones(2, 2, requires_grad=True)
    for y in (x + 2, 2 - x, -x, x.mean(), x.cumsum(0), x.add(x, alpha=3), m.cat([x, x]), x.t()[1:]):
        y.sum().backward()
        y.sum().backward()
    return x.grad


def gradients_beside_infinity(m: Any) -> Any:
    grads = []
    for values in ([1.0, math.inf], [-math.inf, 2.0], [math.nan, 1.0]):
        x = m.tensor([values, [0.5, 1.5]], requires_grad=True)
        x.logsumexp(1).sum().backward()
        grads.append(x.grad)
    return grads


def einsum_of_numbers(m: Any) -> Any:
    a, b = m.arange(6.0).reshape(2, 3), m.arange(12.0).reshape(3, 4)
    return [
        m.einsum(a, [0, 1], b, [1, 2], [0, 2]),
        m.einsum(a, [0, 1], b, [1, 2]),
        m.einsum(a, [1, 0]),
        m.einsum(a, [..., 5], [5, ...]),
    ]


def typed_tensors(m: Any) -> Any:
    made = [
        m.FloatTensor([1, 2]),
        m.LongTensor([[1], [2]]),
        m.ByteTensor((1, 2)),
        m.BoolTensor([True]),
        m.HalfTensor([1]),
    ]
    made += [m.DoubleTensor(made[0].tolist()), m.FloatTensor(made[0]), m.IntTensor([]), m.LongTensor(np.array([3, 4]))]
    sizes = [tuple(m.LongTensor(2, 3).shape), tuple(m.FloatTensor(m.Size([4])).shape), tuple(m.FloatTensor().shape)]
    tests = [isinstance(m.ones(2), kind) for kind in (m.FloatTensor, m.LongTensor, m.DoubleTensor)]
    return [*made, *sizes, *tests, isinstance(3, m.FloatTensor)]


def warm_restarts(m: Any) -> Any:
    rates = []
    for options in ({"T_0": 3}, {"T_0": 1, "T_mult": 2, "eta_min": 0.1}, {"T_0": 2, "T_mult": 3}):
        optimizer = m.optim.SGD([m.ones(1, requires_grad=True)], lr=1.5)
        schedule = m.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, **options)
        for epoch in [None] * 9 + [0.5, 2.25, 7, None, None]:
            optimizer.step()
            schedule.step() if epoch is None else schedule.step(epoch)
            rates += [round(optimizer.param_groups[0]["lr"], 9), schedule.last_epoch, schedule.T_i]
    return rates


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program",
    [
        lists_as_indices,
        writes_under_masks_cast,
        one_element_tensors_are_numbers,
        keywords,
        backward_twice_where_nothing_is_kept,
        gradients_beside_infinity,
        einsum_of_numbers,
        typed_tensors,
        warm_restarts,
    ],
)
def test_corner(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)
