"""The batching rules of products and of linear algebra, which take leading dims as they are."""

from __future__ import annotations

import functools
import string
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack.func._aligned import dim_of, elementwise, padded, rank_of, refuse, spread, wrapped
from tesserack.func._batched import Batched, Unbatchable, is_batched
from tesserack.ops.registry import operators

__all__ = ["MATRICES", "matmul"]


def matmul(a: Any, b: Any) -> Batched:
    rows, columns = rank_of(a) == 1, rank_of(b) == 1
    if not rank_of(a) or not rank_of(b):
        raise Unbatchable("matmul of tensors without dims")
    if rows:
        a = Batched(a.value.unsqueeze(-2)) if is_batched(a) else a.unsqueeze(-2)
    if columns:
        b = Batched(b.value.unsqueeze(-1)) if is_batched(b) else b.unsqueeze(-1)
    rank = max(rank_of(a), rank_of(b))
    found = ts.matmul(padded(a, rank), padded(b, rank))
    found = found.squeeze(-1) if columns else found
    return Batched(found.squeeze(-1 if columns else -2) if rows else found)


def _of_ranks(*ranks: int) -> Callable[[Any, Any], Batched]:
    def product(a: Any, b: Any) -> Batched:
        return matmul(a, b) if (rank_of(a), rank_of(b)) == ranks else refuse("a product")

    return product


def _of_matrices(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    if not is_batched(x) or x.ndim < 2 or any(is_batched(v) for v in (*args, *kwargs.values())):
        raise Unbatchable(name)
    return wrapped(operators()[name](x.value, *args, **kwargs))


def _pair(name: str, a: Any, b: Any, *args: Any, **kwargs: Any) -> Batched:
    """Of two matrices, or of two batches of as many dims."""
    if rank_of(a) < 2 or rank_of(a) != rank_of(b) or a.shape[:-2] != b.shape[:-2]:
        raise Unbatchable(name)
    count = next(len(v.value) for v in (a, b) if is_batched(v))
    return Batched(operators()[name](spread(a, count), spread(b, count), *args, **kwargs))


def _solve(a: Any, b: Any, *, left: bool = True) -> Batched:
    if rank_of(a) == 2 and rank_of(b) == 1 and left:
        column: Any = Batched(b.value.unsqueeze(-1)) if is_batched(b) else b.unsqueeze(-1)
        return Batched(_pair("linalg_solve", a, column).value.squeeze(-1))
    return _pair("linalg_solve", a, b, left=left)


def _outer(a: Any, b: Any) -> Batched:
    if rank_of(a) != 1 or rank_of(b) != 1:
        raise Unbatchable("outer")
    column: Any = Batched(a.value.unsqueeze(-1)) if is_batched(a) else a.unsqueeze(-1)
    row: Any = Batched(b.value.unsqueeze(-2)) if is_batched(b) else b.unsqueeze(-2)
    return elementwise("mul", (column, row), {})


def _added(ranks: tuple[int, int], start: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Batched:
    """A product, ``alpha`` times, added to ``beta`` times the start."""
    if (rank_of(a), rank_of(b)) != ranks or beta != 1 or alpha != 1 or a.dtype is not start.dtype:
        raise Unbatchable("a product that is scaled")
    made = matmul(a, b) if is_batched(a) or is_batched(b) else ts.matmul(a, b)
    if rank_of(start) > rank_of(made) or any(
        n not in (1, m) for n, m in zip(start.shape[::-1], made.shape[::-1], strict=False)
    ):
        raise Unbatchable("a start that is not spread")
    return elementwise("add", (start, made), {})


def _einsum(equation: Any, *tensors: Any) -> Batched:
    given = tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    if not isinstance(equation, str) or "->" not in equation:
        raise Unbatchable("einsum whose result is not said")
    terms, result = equation.replace(" ", "").split("->")
    free = next((letter for letter in string.ascii_letters if letter not in equation), None)
    parts = terms.split(",")
    if free is None or len(parts) != len(given):
        raise Unbatchable("einsum")
    lead = [free + part if is_batched(x) else part for part, x in zip(parts, given, strict=True)]
    whole = [x.value if is_batched(x) else x for x in given]
    return Batched(ts.einsum(f"{','.join(lead)}->{free}{result}", *whole))


def _cdist(x1: Any, x2: Any, *args: Any, **kwargs: Any) -> Batched:
    rank = max(rank_of(x1), rank_of(x2))
    if min(rank_of(x1), rank_of(x2)) < 2:
        raise Unbatchable("cdist")
    return Batched(operators()["cdist"](padded(x1, rank), padded(x2, rank), *args, **kwargs))


def _cross(a: Any, b: Any, *, dim: int = -1) -> Batched:
    if rank_of(a) != rank_of(b):
        raise Unbatchable("linalg_cross")
    like: Any = a if is_batched(a) else b
    count = len(like.value)
    return Batched(operators()["linalg_cross"](spread(a, count), spread(b, count), dim=dim_of(like, dim)))


def _trace(x: Any) -> Batched:
    if not is_batched(x) or x.ndim != 2:
        raise Unbatchable("trace")
    return Batched(x.value.diagonal(dim1=-2, dim2=-1).sum(-1))


MATRICES: dict[str, Callable[..., Any]] = {
    "matmul": matmul,
    "mm": _of_ranks(2, 2),
    "mv": _of_ranks(2, 1),
    "dot": _of_ranks(1, 1),
    "bmm": _of_ranks(3, 3),
    **{
        name: functools.partial(_of_matrices, name)
        for name in (
            "cholesky",
            "det",
            "inverse",
            "linalg_cholesky",
            "linalg_det",
            "linalg_eigh",
            "linalg_eigvalsh",
            "linalg_inv",
            "linalg_matrix_exp",
            "linalg_matrix_power",
            "linalg_qr",
            "linalg_slogdet",
            "linalg_svd",
            "linalg_svdvals",
            "logdet",
            "slogdet",
            "tril",
            "triu",
        )
    },
    **{name: functools.partial(_pair, name) for name in ("cholesky_solve", "linalg_solve_triangular")},
    "linalg_solve": _solve,
    "outer": _outer,
    "addmm": functools.partial(_added, (2, 2)),
    "addmv": functools.partial(_added, (2, 1)),
    "baddbmm": functools.partial(_added, (3, 3)),
    "einsum": _einsum,
    "cdist": _cdist,
    "linalg_cross": _cross,
    "trace": _trace,
}
