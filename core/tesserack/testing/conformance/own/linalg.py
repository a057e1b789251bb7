"""Calls of the kernels of linear algebra: what does not depend on signs and orders that factors may have otherwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import tesserack as ts
from tesserack.testing.conformance.own.given import Given

__all__ = ["CALLS", "recurrent"]

Run = Callable[[Given], Any]
linalg: Any = ts.linalg


def recurrent(g: Given, layers: int) -> Any:
    """A small LSTM whose weights are operands."""
    weights = []
    for layer in range(layers):
        width = 5 if layer == 0 else 9
        weights += [g(36, width, scale=0.3), g(36, 9, scale=0.3), g(36), g(36)]
    states = g(layers, 3, 9), g(layers, 3, 9)
    outputs, *last = ts.lstm(g(13, 3, 5), states, weights, True, layers, 0.0, False, False, False)
    return [outputs, *last]


def _regular(g: Given, *shape: int) -> Any:
    """Square matrices that are far from singular."""
    return g(*shape).detach() + 4 * ts.eye(shape[-1], dtype=g.dtype, device=g.device)


def _definite(g: Given, *shape: int) -> Any:
    x = g(*shape).detach()
    return x @ x.mT + 3 * ts.eye(shape[-1], dtype=g.dtype, device=g.device)


def _whole_again(factors: Any) -> Any:
    """The product of three."""
    left, middle, right = factors
    return (left * middle.unsqueeze(-2)) @ right


def _of_eigenvectors(values: Any, vectors: Any) -> Any:
    return _whole_again((vectors, values, vectors.mT))


def _triangular(g: Given, upper: bool, left: bool) -> Any:
    a = _regular(g, 17, 17)
    return linalg.solve_triangular(a.triu() if upper else a.tril(), g(17, 17).detach(), upper=upper, left=left)


def _lu(g: Given) -> Any:
    p, lower, upper = linalg.lu(_regular(g, 3, 19, 19))
    return p @ lower @ upper, lower.triu(1), upper.tril(-1)


def _qr(g: Given) -> Any:
    q, r = linalg.qr(g(2, 23, 11).detach())
    return q @ r, q.mT @ q, r.tril(-1)


def _eigenvalues(g: Given) -> Any:
    """By their sums of powers, whatever their order."""
    values = linalg.eigvals(g(9, 9).detach())
    return ts.view_as_real(values.sum()), ts.view_as_real((values**2).sum())


def _ldl(g: Given) -> Any:
    a, b = _definite(g, 13, 13), g(13, 4).detach()
    return linalg.ldl_solve(*linalg.ldl_factor(a), b)


def _reflected(g: Given) -> Any:
    a, tau = ts.geqrf(g(15, 7).detach())
    q = linalg.householder_product(a, tau)
    return q.mT @ q, q @ a[:7].triu()


def _applied(g: Given) -> Any:
    a, tau = ts.geqrf(g(15, 7).detach())
    other = g(15, 3).detach()
    turned = ts.ormqr(a, tau, other)
    return ts.ormqr(a, tau, turned, transpose=True), turned.norm(dim=0)


CALLS: dict[str, dict[str, Run]] = {
    "lapack_cholesky": {"17 x 17": lambda g: linalg.cholesky(_definite(g, 2, 17, 17))},
    "lapack_cholesky_solve": {
        "17 x 17": lambda g: ts.cholesky_solve(g(17, 3).detach(), linalg.cholesky(_definite(g, 17, 17)))
    },
    "lapack_ldl": {"13 x 13, solved": _ldl},
    "lapack_ldl_solve": {"13 x 13": _ldl},
    "lapack_lu": {"19 x 19": _lu, "determinants": lambda g: linalg.slogdet(_regular(g, 3, 12, 12))},
    "lapack_permutation": {"19 x 19": _lu},
    "lapack_lu_solve": {
        "19 x 19": lambda g: linalg.lu_solve(*linalg.lu_factor(_regular(g, 3, 19, 19)), g(3, 19, 2).detach()),
        "solve": lambda g: linalg.solve(_regular(g, 40, 40), g(40, 5).detach()),
        "inverse": lambda g: linalg.inv(_regular(g, 2, 9, 9)),
    },
    "lapack_triangular_solve": {
        f"{'upper' if upper else 'lower'}, {'left' if left else 'right'}": partial(_triangular, upper=upper, left=left)
        for upper in (False, True)
        for left in (False, True)
    },
    "lapack_qr": {"23 x 11": _qr},
    "lapack_reflectors": {"15 x 7": _reflected},
    "lapack_apply_reflectors": {"15 x 7": _applied},
    "lapack_svd": {
        "singular values of 13 x 21": lambda g: linalg.svdvals(g(2, 13, 21).detach()),
        "13 x 9, whole again": lambda g: _whole_again(linalg.svd(g(13, 9).detach(), full_matrices=False)),
    },
    "lapack_eigh": {
        "values": lambda g: linalg.eigvalsh(_definite(g, 2, 12, 12)),
        "whole again": lambda g: _of_eigenvectors(*linalg.eigh(_definite(g, 15, 15))),
    },
    "lapack_eig": {"9 x 9": _eigenvalues},
    "lapack_least_squares": {"23 x 7": lambda g: linalg.lstsq(g(23, 7).detach(), g(23, 2).detach()).solution},
}
