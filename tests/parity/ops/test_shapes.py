"""Shapes at the edge of what operators take: padding past the input, empty batches, outputs larger than need be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch


def outcome(call: Any, m: Any) -> Any:
    try:
        result = call(m, m.nn.functional)
    except (RuntimeError, ValueError, IndexError) as error:
        return type(error)
    return [t.detach().numpy() for t in (result if isinstance(result, (tuple, list)) else [result])]


def compare(call: Any) -> None:
    ours, theirs = outcome(call, ts), outcome(call, torch)
    if isinstance(theirs, type):
        assert ours is theirs
        return
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-10)


def with_gradient(m: Any, y: Any, *inputs: Any) -> list[Any]:
    return [y, *m.autograd.grad((y * y).sum(), inputs)]


@pytest.mark.parametrize("pad", [(5, 0), (0, 5), (4, 4), (-1, 2), (2, -1), (-2, -1), (-1, 3), (0, 0)])
def test_circular_padding_repeats_what_is_left(pad: tuple[int, int]) -> None:
    def call(m: Any, f: Any) -> Any:
        x = m.arange(4.0).reshape(1, 1, 4).requires_grad_()
        return with_gradient(m, f.pad(x, pad, mode="circular"), x)

    compare(call)


@pytest.mark.parametrize("pad", [(1, 2, 3, 1), (4, 4, 3, 3), (-1, 1, 2, 2), (5, 0, 0, 0), (0, 0, 4, 0)])
def test_circular_padding_of_two_dimensions(pad: tuple[int, ...]) -> None:
    compare(lambda m, f: f.pad(m.arange(12.0).reshape(1, 1, 3, 4), pad, mode="circular"))


@pytest.mark.parametrize("n", range(6))
def test_differences_of_any_order(n: int) -> None:
    compare(lambda m, f: m.diff(m.arange(3.0) ** 2, n=n))
    compare(lambda m, f: m.diff(m.arange(3.0) ** 2, n=n, prepend=m.tensor([7.0]), append=m.tensor([9.0])))
    compare(lambda m, f: m.diff(m.tensor([True, False, False]), n=n))
    compare(lambda m, f: m.diff(m.arange(6).reshape(2, 3), n=n, dim=0))
    compare(lambda m, f: m.diff(m.zeros(2, 0), n=n))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(0, 3), (0, 3, 2), (2, 3, 0)])
def test_batch_norm_of_nothing(training: bool, shape: tuple[int, ...]) -> None:
    def call(m: Any, f: Any) -> Any:
        x = m.zeros(shape, requires_grad=True)
        c = shape[1]
        weight, bias = m.ones(c, requires_grad=True), m.ones(c, requires_grad=True)
        mean, var = m.ones(c), m.ones(c) * 2
        y = f.batch_norm(x, mean, var, weight, bias, training)
        return [*with_gradient(m, y, x, weight, bias), mean, var]

    compare(call)


@pytest.mark.parametrize("dim", range(3))
def test_distinct_slices_are_ordered_alike(dim: int) -> None:
    values = [[[3, 1, 1], [2, 2, 2]], [[1, 5, 0], [1, 1, 7]], [[0, 1, 1], [2, 0, 1]]]
    compare(lambda m, f: m.unique(m.tensor(values), dim=dim, return_inverse=True, return_counts=True))
    compare(lambda m, f: m.unique_consecutive(m.tensor(values), dim=dim, return_inverse=True, return_counts=True))


@pytest.mark.parametrize("shape", [(3,), (2,), (1,), (2, 1), (1, 3), (), (1, 1), (2, 3)])
def test_the_variance_of_gaussian_nll_loss_broadcasts_along_one_dim(shape: tuple[int, ...]) -> None:
    compare(lambda m, f: f.gaussian_nll_loss(m.zeros(2, 3), m.ones(2, 3), m.full(shape, 2.0)))


@pytest.mark.parametrize(
    ("n", "stride", "dilation", "extra", "padding", "kernel"),
    [
        (2, 1, 3, 2, 0, 2),
        (2, 2, 1, 1, 0, 2),
        (2, 2, 1, 1, 1, 3),
        (1, 2, 3, 2, 1, 2),
        (3, 2, 1, 1, 0, 2),
        (3, 2, 3, 2, 0, 2),
        (2, (2, 1), (1, 3), (1, 2), 0, 2),
    ],
)
def test_transposed_convolutions_with_output_padding(
    n: int, stride: Any, dilation: Any, extra: Any, padding: int, kernel: int
) -> None:
    def call(m: Any, f: Any) -> Any:
        x = (m.arange(2.0 * 3**n).reshape(1, 2, *[3] * n) / 7).double().requires_grad_()
        w = m.ones(2, 2, *[kernel] * n).double().cumsum(-1).requires_grad_()
        b = m.ones(2).double().requires_grad_()
        forward = getattr(f, f"conv_transpose{n}d")
        y = forward(x, w, b, stride=stride, dilation=dilation, output_padding=extra, padding=padding)
        first = m.autograd.grad((y * y).sum(), [x, w, b], create_graph=True)
        return [y, *first, *m.autograd.grad(sum((g * g).sum() for g in first), [x, w, b])]

    compare(call)
