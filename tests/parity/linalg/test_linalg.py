"""Linear algebra on both libraries: values, gradients of two orders, errors, for what samples do not cover."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch


def numbers(*shape: int) -> Any:
    return np.random.default_rng(4).standard_normal(shape)


def spd(m: Any, a: Any) -> Any:
    return a @ a.transpose(-1, -2) + m.eye(a.shape[-1], dtype=m.float64)


# Signs of vectors differ: squares and products do not.
CALLS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "cholesky": (lambda m, a: m.linalg.cholesky(spd(m, a)), [numbers(2, 3, 3)]),
    "cholesky upper": (lambda m, a: m.linalg.cholesky(spd(m, a), upper=True), [numbers(3, 3)]),
    "cholesky_solve": (
        lambda m, a, b: m.cholesky_solve(b, m.linalg.cholesky(spd(m, a))),
        [numbers(3, 3), numbers(3, 2)],
    ),
    "cholesky_inverse": (lambda m, a: m.cholesky_inverse(m.linalg.cholesky(spd(m, a))), [numbers(3, 3)]),
    "qr": (lambda m, a: m.linalg.qr(a), [numbers(2, 4, 3)]),
    "qr wide": (lambda m, a: m.linalg.qr(a), [numbers(3, 5)]),
    "qr complete": (lambda m, a: m.linalg.qr(a, "complete"), [numbers(3, 4)]),
    "lu": (lambda m, a: m.linalg.lu(a)[1:], [numbers(2, 3, 3)]),
    "lu tall": (lambda m, a: m.linalg.lu(a)[1:], [numbers(5, 3)]),
    "lu wide": (lambda m, a: m.linalg.lu(a)[1:], [numbers(3, 5)]),
    "lu_solve": (
        lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b, left=False, adjoint=True),
        [numbers(3, 3), numbers(2, 3)],
    ),
    "eigh": (lambda m, a: [m.linalg.eigh(a + a.mT)[0], m.linalg.eigh(a + a.mT)[1] ** 2], [numbers(3, 3)]),
    "eigh of a triangle": (lambda m, a: m.linalg.eigh(a, "U")[0], [numbers(2, 3, 3)]),
    "svd": (lambda m, a: [t**2 for t in m.linalg.svd(a, full_matrices=False)], [numbers(2, 4, 3)]),
    "lstsq": (lambda m, a, b: m.linalg.lstsq(a, b, driver="gelsd"), [numbers(5, 3), numbers(5, 2)]),
    "lstsq of a vector": (lambda m, a, b: m.linalg.lstsq(a, b)[0], [numbers(3, 5), numbers(3)]),
    "householder_product": (lambda m, a: m.linalg.householder_product(a, a[0, :2]), [numbers(4, 3)]),
    "nuclear norm": (
        lambda m, a: [m.linalg.matrix_norm(a, "nuc", keepdim=True), m.norm(a[0], "nuc")],
        [numbers(2, 3, 3)],
    ),
    "spectral norm": (lambda m, a: [m.linalg.norm(a, 2, (2, 0)), m.linalg.matrix_norm(a, -2)], [numbers(2, 3, 4)]),
}


@pytest.mark.parametrize("name", CALLS)
def test_same(name: str, compare: Callable[..., None]) -> None:
    call, arrays = CALLS[name]
    compare(call, *arrays)


ERRORS: dict[str, Callable[..., Any]] = {
    "not square": lambda m, a: m.linalg.inv(a),
    "a vector": lambda m, a: m.linalg.svd(a[0]),
    "sides": lambda m, a: m.linalg.solve(a[:, :2], a.mT),
    "uplo": lambda m, a: m.linalg.eigh(a[:, :2], "X"),
    "mode": lambda m, a: m.linalg.qr(a, "whole"),
    "driver": lambda m, a: m.linalg.lstsq(a, a, driver="fast"),
    "rank of ints": lambda m, a: m.linalg.matrix_power(a, 2),
    "one matrix": lambda m, a: m.linalg.multi_dot([a]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_refused(name: str, compare_errors: Callable[..., None]) -> None:
    compare_errors(ERRORS[name], numbers(2, 3))


def test_errors_have_a_class() -> None:
    for m in (ts, torch):
        for call in (m.linalg.inv, m.linalg.cholesky):
            with pytest.raises(m.linalg.LinAlgError):
                call(m.zeros(2, 2))
