"""Strides of what advanced indexing reads: dims that are not indexed keep the order in which they lie in memory."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import tesserack as ts
import torch

# Keys of a tensor of four dims, in terms of i: two positions, j: a matrix of them, b(n): a mask of n elements.
KEYS = (
    "x[i]", "x[j]", "x[:, i]", "x[:, j]", "x[:, :, i]", "x[:, :, j]", "x[..., i]", "x[..., j]", "x[i, i]", "x[j, :, i]",
    "x[:, i, :, i]", "x[:, i, i]", "x[i, :, :, j]", "x[i, i, i, i]", "x[b(0)]", "x[:, :, b(2)]",
    "x[1:, i]", "x[i, ..., None]", "x[b(0, 1)]", "x[:, b(1, 2)]", "x[:0, i]", "x[m.tensor(True)]",
)  # fmt: skip


def names(m: Any, x: Any) -> dict[str, Any]:
    def mask(*dims: int) -> Any:
        shape = [x.shape[d] for d in dims]
        return (m.arange(shape[0] if len(shape) == 1 else shape[0] * shape[1]) % 2 == 0).reshape(shape)

    return {"m": m, "x": x, "i": m.tensor([1, 0]), "j": m.tensor([[0, 1], [1, 0], [1, 1]]), "b": mask}


def layouts(m: Any) -> list[Any]:
    base = m.arange(120.0).reshape(2, 3, 4, 5)
    moved = [base.permute(*order) for order in itertools.permutations(range(4))]
    return [*moved, base.expand(2, 2, 3, 4, 5)[:, 0], base[:, :, ::2, 1:3], base[:1].expand(3, 3, 4, 5)]


def told(x: Any) -> list[int]:
    """The strides that say something."""
    return [step for size, step in zip(x.shape, x.stride(), strict=True) if size > 1]


@pytest.mark.parametrize("key", KEYS)
def test_reads(key: str) -> None:
    for ours, theirs in zip(layouts(ts), layouts(torch), strict=True):
        mine, want = eval(key, names(ts, ours)), eval(key, names(torch, theirs))
        assert mine.tolist() == want.tolist(), (key, ours.stride())
        if want.numel():
            assert told(mine) == told(want), (key, tuple(ours.shape), ours.stride())


@pytest.mark.parametrize("key", ["x[i]", "x[b(0)]", "x[1:][i]"])
def test_images_stay_channels_last(key: str) -> None:
    x = ts.randn(4, 3, 5, 6).contiguous(memory_format=ts.channels_last).requires_grad_()
    plain = x.detach().contiguous().requires_grad_()
    picked, want = eval(key, names(ts, x)), eval(key, names(ts, plain))
    assert picked.is_contiguous(memory_format=ts.channels_last) and not picked.is_contiguous()
    (grad,) = ts.autograd.grad((picked * picked).sum(), x)
    (expected,) = ts.autograd.grad((want * want).sum(), plain)
    assert ts.equal(picked, want) and ts.equal(grad, expected)
