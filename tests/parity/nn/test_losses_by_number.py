"""Losses as functions beside those of nn.functional: their reduction is a number, and by itself not the mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tesserack.aten.operators import namespace

RNG = np.random.default_rng(3)
A, B, C = (RNG.random((6, 4)) + 0.1 for _ in range(3))
CALLS: dict[str, Any] = {
    "binary_cross_entropy_with_logits": lambda f, a, b, c, *r: f(a, b, c.detach(), b.detach(), *r),
    "kl_div": lambda f, a, b, c, *r: f(a.log(), b, *r),
    "margin_ranking_loss": lambda f, a, b, c, *r: f(a, b, (c - 0.6).sign(), 0.1, *r),
    "hinge_embedding_loss": lambda f, a, b, c, *r: f(a, (c - 0.6).sign(), 1.0, *r),
    "cosine_embedding_loss": lambda f, a, b, c, *r: f(a, b, (c[:, 0] - 0.6).sign(), 0.1, *r),
    "triplet_margin_loss": lambda f, a, b, c, *r: f(a, b, c, 1.0, 2.0, 1e-6, False, *r),
    "poisson_nll_loss": lambda f, a, b, c, *r: f(a, b, True, False, 1e-8, *(r or (0,))),
}


@pytest.mark.parametrize("reduction", [(), (0,), (1,), (2,)])
@pytest.mark.parametrize("name", CALLS)
def test_reductions_by_number(name: str, reduction: tuple[int, ...], compare: Any) -> None:
    compare(lambda m, a, b, c: CALLS[name](getattr(m, name), a, b, c, *reduction), A, B, C)


@pytest.mark.parametrize("reduction", [(), (0,), (1,), (2,)])
def test_the_sequence_loss_by_number(reduction: tuple[int, ...], compare: Any) -> None:
    def call(m: Any, x: Any) -> Any:
        targets = m.ones(3, 2, dtype=m.int64)
        return m.ctc_loss(x.log_softmax(2), targets, (6, 6, 6), (2, 1, 2), 0, *reduction)

    compare(call, RNG.standard_normal((6, 3, 4)), order=1)


@pytest.mark.parametrize("reduction", [(), (0,), (1,)])
@pytest.mark.parametrize("name", [n for n in CALLS if n != "poisson_nll_loss"])  # whose reduction has no default
def test_operators_of_aten_take_the_mean_by_themselves(name: str, reduction: tuple[int, ...], compare: Any) -> None:

    def call(m: Any, a: Any, b: Any, c: Any) -> Any:
        return CALLS[name](getattr(m.ops.aten if m is torch else namespace("aten"), name), a, b, c, *reduction)

    compare(call, A, B, C)
