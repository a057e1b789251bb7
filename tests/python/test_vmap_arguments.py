"""vmap over every choice of an operator's arguments, one of them alone included: as a loop over the entries."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.nn import functional as F

Case = tuple[Callable[..., Any], list[tuple[int, ...]]]
CASES: dict[str, Case] = {
    "linear": (F.linear, [(2, 3, 3), (4, 3), (4,)]),
    "linear of a square": (F.linear, [(2, 3), (2, 3), (2,)]),
    "linear of a vector": (F.linear, [(3,), (2, 3), (2,)]),
    "bilinear": (F.bilinear, [(2, 2), (2, 2), (2, 2, 2), (2,)]),
    "addmm": (ts.addmm, [(2,), (2, 2), (2, 2)]),
    "addmv": (ts.addmv, [(2,), (2, 2), (2,)]),
    "baddbmm": (ts.baddbmm, [(2, 2, 2), (2, 2, 2), (2, 2, 2)]),
    "addcmul": (ts.addcmul, [(2, 2), (2, 2), (2,)]),
    "lerp": (ts.lerp, [(2, 2), (2,), (2, 2)]),
    "conv1d": (F.conv1d, [(2, 2, 4), (2, 2, 2), (2,)]),
    "conv1d of one": (F.conv1d, [(2, 4), (2, 2, 2), (2,)]),
    "conv1d of the same length": (lambda x, w: F.conv1d(x, w, padding="same"), [(2, 2, 4), (2, 2, 3)]),
    "conv2d": (
        lambda x, w, b: F.conv2d(x, w, b, 2, (1, 0), 1, 2),
        [(2, 4, 5, 5), (6, 2, 3, 3), (6,)],
    ),
    "conv3d": (lambda x, w, b: F.conv3d(x, w, bias=b, groups=2), [(4, 3, 3, 3), (2, 2, 2, 2, 2), (2,)]),
    "conv_transpose1d": (F.conv_transpose1d, [(2, 2, 4), (2, 2, 2), (2,)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (2,), w, b), [(2, 2), (2,), (2,)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [(2, 2, 2), (2,), (2,)]),
    "instance_norm": (lambda x, w, b: F.instance_norm(x, weight=w, bias=b), [(2, 2, 2), (2,), (2,)]),
    "prelu": (F.prelu, [(2, 2), (2,)]),
    "attention": (F.scaled_dot_product_attention, [(2, 2, 2), (2, 2, 2), (2, 2, 2), (2, 2)]),
    "nll_loss": (lambda x, w: F.nll_loss(x, ts.tensor([0, 1]), w), [(2, 2), (2,)]),
    "cross_entropy": (F.cross_entropy, [(2, 2), (2, 2), (2,)]),
    "solve": (ts.linalg.solve, [(2, 2), (2,)]),
    "masked_fill": (lambda x, m, v: x.masked_fill(m > 0.5, v), [(2, 2), (2,), ()]),
    "index_add": (lambda x, at, v: x.index_add(0, (at * 2).long(), v), [(2, 2), (2,), (2, 2)]),
}


@pytest.mark.parametrize("name", CASES)
def test_any_of_the_arguments_has_entries(name: str) -> None:
    function, shapes = CASES[name]
    for dims in itertools.product((None, 0, -1), repeat=len(shapes)):
        if all(dim is None for dim in dims):
            continue
        numbers = np.random.default_rng(3)
        given = [
            ts.tensor(numbers.random(shape) if dim is None else np.moveaxis(numbers.random((2, *shape)), 0, dim))
            for shape, dim in zip(shapes, dims, strict=True)
        ]
        entries = [
            function(*(x if dim is None else x.select(dim, k) for x, dim in zip(given, dims, strict=True)))
            for k in range(2)
        ]
        np.testing.assert_allclose(
            ts.vmap(function, dims)(*given).numpy(), ts.stack(entries).numpy(), rtol=1e-9, atol=1e-12, err_msg=str(dims)
        )


@pytest.mark.parametrize("groups", [1, 2])
def test_weights_of_each_entry_convolve_at_once(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With their gradients, as an ensemble has them, and as a gradient for each sample has."""
    monkeypatch.setattr("tesserack.func._batched.Fallback.enabled", False)
    numbers = np.random.default_rng(3)
    images = ts.tensor(numbers.random((5, 3, 4, 6, 6)))
    weights, biases = ts.tensor(numbers.random((5, 2, 4 // groups, 3, 3))), ts.tensor(numbers.random((5, 2)))

    def loss(weight: Any, bias: Any, image: Any) -> Any:
        return F.conv2d(image, weight, bias, padding=1, groups=groups).sin().sum()

    gradients = ts.func.grad(loss, (0, 1, 2))
    for dims in itertools.product((None, 0), repeat=3):
        if not any(dim == 0 for dim in dims):
            continue
        given = [x[0] if dim is None else x for x, dim in zip((weights, biases, images), dims, strict=True)]
        found = ts.vmap(gradients, dims)(*given)
        for k in range(5):
            entry = [x if dim is None else x[k] for x, dim in zip(given, dims, strict=True)]
            for got, want in zip(found, gradients(*entry), strict=True):
                ts.testing.assert_close(got[k], want)
