"""Products of matrices, einsum, distances and attention against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

Call = Callable[..., Any]
RNG = np.random.default_rng(1)


def rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((4,), (4,)),
        ((4,), (4, 3)),
        ((3, 4), (4,)),
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 3)),
        ((2, 3, 4), (2, 4, 5)),
        ((6, 1, 3, 4), (2, 4, 5)),
        ((3, 4), (2, 4, 5)),
        ((1, 3, 4), (5, 4, 2)),
        ((0, 4), (4, 3)),
        ((3, 0), (0, 2)),
        ((2, 0, 4), (4, 3)),
        ((2, 3, 0), (0,)),
        ((0,), (0,)),
        ((2, 1, 3, 4), (1, 5, 4, 2)),
    ],
)
def test_matmul(compare: Call, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    compare(lambda m, a, b: [m.matmul(a, b), a @ b], rand(*left), rand(*right))
    compare(lambda m, a, b: a @ b, rand(*left), rand(*right), dtype="float32")
    compare(lambda m, a, b: a @ b, rand(*left), rand(*right), dtype="bfloat16")


def test_matmul_strided(compare: Call) -> None:
    compare(lambda m, a, b: a.t() @ b.flip(0), rand(4, 3), rand(4, 5))
    compare(lambda m, a, b: a.transpose(1, 2) @ b.transpose(0, 2), rand(2, 4, 3), rand(5, 4, 2))
    compare(lambda m, a, b: a.expand(3, 2, 4) @ b, rand(1, 2, 4), rand(4, 5))
    compare(lambda m, a, b: a[:, ::2] @ b[::2], rand(3, 8), rand(8, 2))
    compare(lambda m, a, b: a @ b, RNG.integers(-5, 5, (3, 4)), RNG.integers(-5, 5, (4, 2)))


PAIRS: dict[str, tuple[Call, list[tuple[int, ...]]]] = {
    "mm": (lambda m, a, b: m.mm(a, b), [(3, 4), (4, 5)]),
    "bmm": (lambda m, a, b: m.bmm(a, b), [(2, 3, 4), (2, 4, 5)]),
    "mv": (lambda m, a, b: a.mv(b), [(3, 4), (4,)]),
    "dot": (lambda m, a, b: [m.dot(a, b), m.vdot(a, b)], [(4,), (4,)]),
    "inner": (lambda m, a, b: m.inner(a, b), [(2, 3, 4), (5, 4)]),
    "inner0": (lambda m, a, b: m.inner(a, b), [(), (5, 4)]),
    "inner_empty": (lambda m, a, b: m.inner(a, b), [(2, 0), (3, 0)]),
    "outer": (lambda m, a, b: [m.outer(a, b), m.ger(a, b)], [(3,), (4,)]),
    "addmm": (
        lambda m, s, a, b: [m.addmm(s, a, b), s.addmm(a, b, beta=0.5, alpha=2), m.addmm(s, a, b, beta=0)],
        [(5,), (3, 4), (4, 5)],
    ),
    "addmm_empty": (lambda m, s, a, b: m.addmm(s, a, b, beta=2), [(3, 5), (3, 0), (0, 5)]),
    "baddbmm": (
        lambda m, s, a, b: [m.baddbmm(s, a, b), s.baddbmm(a, b, beta=0.5, alpha=2)],
        [(2, 3, 5), (2, 3, 4), (2, 4, 5)],
    ),
    "addmv": (lambda m, s, a, b: [m.addmv(s, a, b), s.addmv(a, b, beta=0.5, alpha=2)], [(3,), (3, 4), (4,)]),
    "addr": (lambda m, s, a, b: m.addr(s, a, b, beta=0.5, alpha=2), [(3, 4), (3,), (4,)]),
    "addbmm": (lambda m, s, a, b: m.addbmm(s, a, b, beta=0.5, alpha=2), [(3, 5), (2, 3, 4), (2, 4, 5)]),
    "linear": (
        lambda m, x, w, b: [m.nn.functional.linear(x, w, b), m.nn.functional.linear(x, w)],
        [(2, 3, 4), (5, 4), (5,)],
    ),
    "linear1": (lambda m, x, w: m.nn.functional.linear(x, w), [(4,), (5, 4)]),
    "linear_vector": (lambda m, x, w: m.nn.functional.linear(x, w), [(2, 3, 4), (4,)]),
    "linear_strided": (lambda m, x, w, b: m.nn.functional.linear(x.t(), w.t(), b[::2]), [(4, 3), (4, 5), (10,)]),
    "linear_empty": (lambda m, x, w, b: m.nn.functional.linear(x, w, b), [(2, 0), (3, 0), (3,)]),
    "bilinear": (lambda m, x, y, w, b: m.nn.functional.bilinear(x, y, w, b), [(2, 3), (2, 4), (5, 3, 4), (5,)]),
    "tensordot": (lambda m, a, b: [m.tensordot(a, b), m.tensordot(a, b, dims=1)], [(3, 4, 4), (4, 4, 2)]),
    "tensordot0": (lambda m, a, b: m.tensordot(a, b, dims=0), [(2, 3), (4,)]),
    "kron": (lambda m, a, b: m.kron(a, b), [(2, 3), (4, 1, 2)]),
    "cross": (lambda m, a, b: [m.linalg.cross(a, b), a.cross(b, dim=1)], [(2, 3), (2, 3)]),
    "trace": (lambda m, a: m.trace(a), [(3, 4)]),
    "cdist": (lambda m, a, b: [m.cdist(a, b), m.cdist(a, b, p=1.0)], [(2, 3, 4), (2, 5, 4)]),
    "cdist_products": (
        lambda m, a, b: [m.cdist(a, b), m.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")],
        [(30, 4), (3, 40, 4)],
    ),
    "cdist_blocks": (lambda m, a, b: [m.cdist(a, b, p=3.0), m.pdist(b, p=3.0)], [(700, 5), (120, 5)]),
    "cosine": (
        lambda m, a, b: [m.cosine_similarity(a, b), m.nn.functional.cosine_similarity(a, b, dim=0)],
        [(3, 4), (3, 4)],
    ),
    "cosine_broadcast": (lambda m, a, b: m.cosine_similarity(a, b, dim=-1), [(3, 4), (4,)]),
    "pairwise": (
        lambda m, a, b: [m.pairwise_distance(a, b), m.pairwise_distance(a, b, p=1.0, keepdim=True)],
        [(3, 4), (3, 4)],
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_products(compare: Call, name: str) -> None:
    call, shapes = PAIRS[name]
    order = 1 if name.startswith("cdist") else 2
    compare(call, *[rand(*s) for s in shapes], order=order)
    if not name.startswith("cdist"):
        compare(call, *[rand(*s) for s in shapes], dtype="float32")


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("ij->ji", [(3, 4)]),
        ("ij->", [(3, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("i,i", [(3,), (3,)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("bn,anm,bm->ba", [(2, 3), (5, 3, 4), (2, 4)]),
        ("ijj->ij", [(2, 3, 3)]),
        ("i...->...", [(2, 3, 4)]),
        ("ij,ij->j", [(3, 4), (1, 4)]),
        ("Ab,bC", [(2, 3), (3, 4)]),
        ("...,...", [(3,), (3,)]),
        ("ij, jk -> k i", [(2, 3), (3, 4)]),
        ("iji->j", [(3, 2, 3)]),
        ("ij,kl,m->jm", [(2, 3), (3, 4), (2,)]),
        ("ij,jk->ik", [(3, 0), (0, 5)]),
        ("iji,jj->i", [(3, 2, 3), (2, 2)]),
    ],
)
def test_einsum(compare: Call, equation: str, shapes: list[tuple[int, ...]]) -> None:
    compare(lambda m, *t: m.einsum(equation, *t), *[rand(*s) for s in shapes])


@pytest.mark.parametrize(
    "equation",
    [
        "bcihd,bcnjhd->bchinj",
        "bchinj,bcnjhd->bcihd",
        "nqhd,nkhd->nhqk",
        "nhql,nlhd->nqhd",
        "ibhd,jbhd->ijbh",
        "bij,kj->bik",
        "bin,ijnm->bijm",
    ],
)
def test_the_result_of_einsum_has_torchs_strides(equation: str) -> None:
    """Programs view it."""
    shapes = [[3 + "bcnhdijqklm".index(label) % 4 for label in term] for term in equation.partition("->")[0].split(",")]
    theirs = torch.einsum(equation, *[torch.rand(s) for s in shapes])
    ours = ts.einsum(equation, *[ts.rand(s) for s in shapes])
    assert (tuple(ours.shape), ours.stride()) == (tuple(theirs.shape), theirs.stride())


def test_attention(compare: Call) -> None:
    sdpa = "scaled_dot_product_attention"
    q, k, v = rand(2, 3, 5, 4), rand(2, 3, 6, 4), rand(2, 3, 6, 7)
    mask = RNG.random((5, 6)) > 0.4
    mask[2] = False
    compare(lambda m, q, k, v: getattr(m.nn.functional, sdpa)(q, k, v), q, k, v)
    compare(lambda m, q, k, v: getattr(m.nn.functional, sdpa)(q, k, v, is_causal=True), q, k, v)
    compare(lambda m, q, k, v: getattr(m.nn.functional, sdpa)(q, k, v, scale=0.3), q, k, v)
    compare(lambda m, q, k, v, b: getattr(m.nn.functional, sdpa)(q, k, v, attn_mask=b), q, k, v, rand(5, 6))
    compare(lambda m, q, k, v, b: getattr(m.nn.functional, sdpa)(q, k, v, attn_mask=b), q, k, v, mask, order=1)
    compare(
        lambda m, q, k, v: getattr(m.nn.functional, sdpa)(q, k, v), rand(5, 4), rand(6, 4), rand(6, 4), dtype="float32"
    )
    compare(
        lambda m, q, k, v: getattr(m.nn.functional, sdpa)(q, k, v, enable_gqa=True),
        rand(2, 4, 5, 4),
        rand(2, 2, 6, 4),
        rand(2, 2, 6, 4),
        order=1,
    )


def test_errors(compare_errors: Call) -> None:
    a, b = rand(3, 4), rand(3, 4)
    for call in (
        lambda m, a, b: a @ b,
        lambda m, a, b: m.mm(a, b[0]),
        lambda m, a, b: m.bmm(a, b),
        lambda m, a, b: a.mv(b),
        lambda m, a, b: m.dot(a, b),
        lambda m, a, b: m.matmul(a, b.t().float()),
        lambda m, a, b: m.matmul(a, b[0, 0]),
        lambda m, a, b: m.addmm(a, a, b),
        lambda m, a, b: m.einsum("ij,jk->ik", a, b),
        lambda m, a, b: m.einsum("ij,jk->iz", a, b.t()),
        lambda m, a, b: m.einsum("ij", a, b),
        lambda m, a, b: m.einsum("i?", a),
        lambda m, a, b: m.nn.functional.linear(a, b.t()),
        lambda m, a, b: m.nn.functional.linear(a, b, a),
        lambda m, a, b: m.tensordot(a, b, dims=2 + 1),
        lambda m, a, b: m.trace(a[0]),
        lambda m, a, b: m.outer(a, b),
    ):
        compare_errors(call, a, b)
