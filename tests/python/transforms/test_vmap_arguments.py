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
    "conv_transpose2d": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1, 2, (1, 2)),
        [(2, 4, 3, 3), (4, 3, 3, 3), (6,)],
    ),
    "conv_transpose3d of one": (F.conv_transpose3d, [(2, 2, 2, 2), (2, 3, 2, 2, 2), (3,)]),
    "layer_norm over two dims": (lambda x, w, b: F.layer_norm(x, (2, 3), w, b, 0.1), [(4, 2, 3), (2, 3), (2, 3)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (2,), w, b), [(2, 2), (2,), (2,)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [(2, 2, 2), (2,), (2,)]),
    "instance_norm": (lambda x, w, b: F.instance_norm(x, weight=w, bias=b), [(2, 2, 2), (2,), (2,)]),
    "group_norm of groups": (lambda x, w, b: F.group_norm(x, 2, w, b, 0.1), [(2, 4, 3), (4,), (4,)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (3,), w, 0.1), [(2, 3), (3,)]),
    "prelu": (F.prelu, [(2, 2), (2,)]),
    "prelu of images": (lambda x, w: F.prelu(x - 0.5, w), [(2, 3, 2, 2), (3,)]),
    "prelu by one slope": (lambda x, w: F.prelu(x - 0.5, w), [(2, 3), (1,)]),
    "prelu of one": (lambda x, w: F.prelu(x - 0.5, w), [(), (1,)]),
    "embedding": (lambda at, w: F.embedding((at * 5).long(), w), [(3,), (5, 2)]),
    "embedding of one": (lambda at, w: F.embedding((at * 5).long(), w, 1), [(), (5, 2)]),
    "attention by heads": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        [(2, 3, 4), (2, 3, 4), (2, 3, 4)],
    ),
    "attention by a mask of truth": (
        lambda q, m: F.scaled_dot_product_attention(q, q * 2, q.sin(), m > 0.3),
        [(2, 2, 3, 4), (3, 3)],
    ),
    "l1_loss": (F.l1_loss, [(2, 3), (2, 3)]),
    "smooth_l1_loss": (lambda x, y: F.smooth_l1_loss(x, y, beta=0.2), [(2, 3), (2, 3)]),
    "huber_loss": (lambda x, y: F.huber_loss(x, y, reduction="sum", delta=0.3), [(2, 3), (2, 3)]),
    "binary_cross_entropy": (F.binary_cross_entropy, [(2, 3), (2, 3), (2, 3)]),
    "binary_cross_entropy of what is spread": (F.binary_cross_entropy, [(2, 3), (2, 3), (3,)]),
    "binary_cross_entropy_with_logits": (
        lambda x, y, w, p: F.binary_cross_entropy_with_logits(x, y, w, pos_weight=p),
        [(2, 3), (2, 3), (2, 3), (2, 3)],
    ),
    "kl_div": (lambda x, y: F.kl_div(x, y, reduction="sum", log_target=True), [(2, 3), (2, 3)]),
    "kl_div of a batch": (lambda x, y: F.kl_div(x, y, reduction="batchmean"), [(2, 3), (2, 3)]),
    "poisson_nll_loss": (lambda x, y: F.poisson_nll_loss(x, y, reduction="none"), [(2, 3), (2, 3)]),
    "soft_margin_loss": (F.soft_margin_loss, [(3,), (3,)]),
    "loss of one number": (F.mse_loss, [(), ()]),
    "cross_entropy of one": (lambda x, y: F.cross_entropy(x, (y * 3).long()), [(3,), ()]),
    "cross_entropy of images": (
        lambda x, y: F.cross_entropy(x, (y * 4).long() - 1, ts.tensor([0.5, 2.0, 1.0]).double(), ignore_index=-1),
        [(2, 3, 2, 2), (2, 2, 2)],
    ),
    "cross_entropy of smooth targets": (
        lambda x, y: F.cross_entropy(x, (y * 3).long(), ignore_index=1, label_smoothing=0.1),
        [(4, 3), (4,)],
    ),
    "cross_entropy with a sum": (
        lambda x, y, w: F.cross_entropy(x, (y * 3).long(), w.detach(), reduction="sum"),
        [(4, 3), (4,), (3,)],
    ),
    "nll_loss of each": (lambda x, y: F.nll_loss(x, (y * 3).long(), reduction="none"), [(4, 3), (4,)]),
    "nll_loss of one": (lambda x, y: F.nll_loss(x, (y * 3).long()), [(3,), ()]),
    "attention": (F.scaled_dot_product_attention, [(2, 2, 2), (2, 2, 2), (2, 2, 2), (2, 2)]),
    "nll_loss": (lambda x, w: F.nll_loss(x, ts.tensor([0, 1]), w.detach()), [(2, 2), (2,)]),
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
        for x in given:
            x.requires_grad_()
        entries = [
            function(*(x if dim is None else x.select(dim, k) for x, dim in zip(given, dims, strict=True)))
            for k in range(2)
        ]
        found, expected = ts.vmap(function, dims)(*given), ts.stack(entries)
        np.testing.assert_allclose(
            found.detach().numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-12, err_msg=str(dims)
        )
        for got, want in zip(gradients(found, given), gradients(expected, given), strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-9, atol=1e-10, err_msg=str(dims))


def gradients(result: ts.Tensor, given: list[ts.Tensor]) -> tuple[ts.Tensor, ...]:
    return ts.autograd.grad(result.sin().sum(), given, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("groups", [1, 2])
def test_weights_of_each_entry_convolve_at_once(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With their gradients, as an ensemble has them, and as a gradient for each sample has."""
    monkeypatch.setattr("tesserack.func._batched.Fallback.enabled", False)
    numbers = np.random.default_rng(3)
    images = ts.tensor(numbers.random((5, 3, 4, 6, 6)))
    weights, biases = ts.tensor(numbers.random((5, 2, 4 // groups, 3, 3))), ts.tensor(numbers.random((5, 2)))

    calls: list[int] = []

    def loss(weight: Any, bias: Any, image: Any) -> Any:
        calls.append(1)
        return F.conv2d(image, weight, bias, padding=1, groups=groups).sin().sum()

    gradients = ts.func.grad(loss, (0, 1, 2))
    for dims in itertools.product((None, 0), repeat=3):
        if not any(dim == 0 for dim in dims):
            continue
        given = [x[0] if dim is None else x for x, dim in zip((weights, biases, images), dims, strict=True)]
        calls.clear()
        found = ts.vmap(gradients, dims)(*given)
        assert len(calls) == 1, "the function is called once for all"
        for k in range(5):
            entry = [x if dim is None else x[k] for x, dim in zip(given, dims, strict=True)]
            for got, want in zip(found, gradients(*entry), strict=True):
                ts.testing.assert_close(got[k], want)
