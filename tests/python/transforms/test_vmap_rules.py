"""Operators that vmap runs once for all entries: as a loop over them, and none entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.nn import functional as F

numbers = np.random.default_rng(7)
X = ts.tensor(numbers.random((4, 3, 6)))
IMAGES = ts.tensor(numbers.random((4, 2, 3, 8, 8)))
SQUARES = ts.tensor(numbers.random((4, 5, 5))) + 5 * ts.eye(5, dtype=ts.float64)
PLACES = ts.tensor(numbers.integers(0, 3, (4, 3, 6)))

ALONG: dict[str, Callable[[Any], Any]] = {
    "index": lambda x: x[:, ts.tensor([0, 2])],
    "index by lists": lambda x: x[[2, 0], [1, 5]],
    "index by a table": lambda x: x[ts.tensor([[0, 2], [1, 1]])],
    "index_select": lambda x: x.index_select(-1, ts.tensor([0, 2])),
    "topk": lambda x: x.topk(2, -1)[0],
    "topk of the first": lambda x: x.topk(2, dim=0, largest=False)[0],
    "glu": F.glu,
    "normalize": lambda x: F.normalize(x, dim=-1),
    "flip": lambda x: x.flip(0, -1),
    "roll": lambda x: x.roll((1, -2), (0, 1)),
    "diff": lambda x: x.diff(2, dim=0),
    "diag_embed": lambda x: ts.diag_embed(x, 1),
    "diag_embed in front": lambda x: ts.diag_embed(x, 0, 0, 2),
    "repeat": lambda x: x.repeat(2, 1, 3),
    "tile": lambda x: x.tile(2),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "vector_norm": lambda x: ts.linalg.vector_norm(x, 3, (0, -1), True),
    "norm of all": lambda x: x.norm(),
    "norm of order 1": lambda x: x.norm(1, 0),
    "linalg.norm": ts.linalg.norm,
    "cosine_similarity": lambda x: F.cosine_similarity(x, x[0] + 1, -1),
    "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=3.0),
    "pad by what is there": lambda x: F.pad(x, (1, 2), "replicate"),
    "bucketize": lambda x: ts.bucketize(x, ts.tensor([0.2, 0.5]).double()),
    "einsum": lambda x: ts.einsum("ij, kj -> ik", x, x),
    "einsum of an ellipsis": lambda x: ts.einsum("...j->...", x),
    "outer": lambda x: ts.outer(x[0], x[1]),
    "cdist": lambda x: ts.cdist(x, x[:2] + 1),
    "cross": lambda x: ts.linalg.cross(x, x.flip(0), dim=0),
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "avg_pool1d": lambda x: F.avg_pool1d(x, 3, padding=1),
}
MATRICES: dict[str, Callable[[Any], Any]] = {
    "det": ts.linalg.det,
    "slogdet": lambda m: ts.linalg.slogdet(m)[1],
    "inv": ts.linalg.inv,
    "solve": lambda m: ts.linalg.solve(m, m.T),
    "solve for a vector": lambda m: ts.linalg.solve(m, m[0]),
    "solve_triangular": lambda m: ts.linalg.solve_triangular(m.tril(), m, upper=False),
    "cholesky": lambda m: ts.linalg.cholesky(m @ m.T),
    "svdvals": ts.linalg.svdvals,
    "eigh": lambda m: ts.linalg.eigh(m + m.T)[0],
    "qr": lambda m: ts.linalg.qr(m)[1],
    "matrix_exp": lambda m: ts.linalg.matrix_exp(m / 5),
    "trace": ts.trace,
    "triu": lambda m: m.triu(1),
    "addmm": lambda m: ts.addmm(m[0], m, m),
    "addmv": lambda m: ts.addmv(m[0], m, m[1]),
}


def check(function: Callable[..., Any], *given: ts.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same results and gradients as of one entry after another."""
    leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in given]
    expected = ts.stack([function(*entry) for entry in zip(*leaves, strict=True)])
    monkeypatch.setattr("tesserack.func._batched.Fallback.enabled", False)
    calls = []
    found = ts.vmap(lambda *entries: calls.append(1) or function(*entries))(*leaves)
    assert len(calls) == 1, "the function is called once for all"
    assert found.dtype is expected.dtype
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-10, atol=1e-12)
    if expected.requires_grad:
        wanted = [x for x in leaves if x.requires_grad]
        pairs = [ts.autograd.grad(result.sin().sum(), wanted) for result in (found, expected)]
        for got, want in zip(*pairs, strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ALONG)
def test_along_dims(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(ALONG[name], X, monkeypatch=monkeypatch)


@pytest.mark.parametrize("name", MATRICES)
def test_matrices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(MATRICES[name], SQUARES, monkeypatch=monkeypatch)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, at: x.gather(0, at),
        lambda x, at: ts.take_along_dim(x, at[:1], 0),
        lambda x, at: ts.zeros(3, 6).double().scatter_add(0, at, x),
        lambda x, at: x.scatter(0, at[:, :2], 2.0),
        lambda x, at: x[at[0]],
        lambda x, at: x[at[:, :2]],
        lambda x, at: ts.arange(3.0).double()[at] * x,
        lambda x, at: F.one_hot(at, 3) * x[..., None],
    ],
)
def test_places_of_each_entry(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    check(function, X, PLACES, monkeypatch=monkeypatch)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda x: F.pixel_unshuffle(x, 2),
        lambda x: F.adaptive_avg_pool2d(x, 3),
        lambda x: F.pad(x, (1, 2, 3, 0), "reflect"),
    ],
)
def test_images(function: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    check(function, IMAGES, monkeypatch=monkeypatch)


def test_places_out_of_range_are_told() -> None:
    """Of one entry alone: none reads what is another's."""
    places = ts.zeros(4, 2, dtype=ts.int64)
    places[1, 0] = 3
    for function in (lambda x, at: x[at], lambda x, at: F.embedding(at, x)):
        with pytest.raises(IndexError):
            ts.vmap(function)(X, places)
    with pytest.raises(IndexError):
        ts.vmap(lambda x: x[ts.tensor([0, 3])])(X)
