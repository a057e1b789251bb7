"""Sums, norms and softmax of sparse tensors."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.sparse._convert import to_coo, to_layout
from tesserack.sparse._dispatch import differentiable, kernel, refuse
from tesserack.sparse._parts import (
    COO,
    CSR,
    build,
    coalesce,
    flat_positions,
    is_sparse,
    parts_of,
    recorded,
    values_of,
)

__all__ = ["sparse_softmax", "sparse_sum"]


def _total(self: Tensor, dtype: Any) -> Tensor:
    return parts_of(self).values.sum(dtype=dtype)


def _total_gradient(ctx: Any, grad: Tensor, self: Tensor, dtype: Any) -> tuple[Any, ...]:
    return grad.to(self.dtype).expand(self.shape), None


# As PyTorch's sum, whose gradient is dense; that of sparse.sum is sparse.
_sum_dense_gradient = differentiable("SumBackward0", _total, _total_gradient)


@kernel("sum")
def sum_all(self: Tensor, dtype: Any = None) -> Tensor:
    return _sum_dense_gradient(self, dtype)


@kernel("sum.dim")
def sum_dim(self: Tensor, dim: Any, keepdim: bool = False, dtype: Any = None) -> Tensor:
    dims = list(range(self.dim())) if dim is None or len(dim) == 0 else [_wrapped(d, self.dim()) for d in dim]
    if dtype is None and not self.is_floating_point() and not self.is_complex():
        dtype = ts.int64
    if self.layout is not COO:
        return _sum_compressed(self, dims, keepdim, dtype)
    result = sparse_sum(self, dims, dtype)
    if keepdim:
        for d in sorted(dims):
            result = result.unsqueeze(d)
    return result


def _wrapped(dim: int, ndim: int) -> int:
    if not -max(ndim, 1) <= dim < max(ndim, 1):
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-max(ndim, 1)}, {max(ndim, 1) - 1}], but got {dim})"
        )
    return dim % max(ndim, 1)


def _sum_compressed(self: Tensor, dims: list[int], keepdim: bool, dtype: Any) -> Tensor:
    if not keepdim:
        raise RuntimeError("sum: reduction operations on CSR tensors with keepdim=False is unsupported; pass "
                           "keepdim=True, or use .to_sparse_coo()")  # fmt: skip
    if self.layout is not CSR or self.dim() != 2:
        raise refuse("sum", self)
    result = sparse_sum(to_coo(self), dims, dtype)
    for d in sorted(dims):
        result = result.unsqueeze(d)
    return to_layout(result if is_sparse(result) else result.to_sparse(), CSR)


def sparse_sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """Sums over all dims (None), or some: dense where no sparse dim is left, else sparse.

    The gradient has the pattern of ``input``.

    >>> import tesserack as ts
    >>> x = ts.tensor([[1.0, 0.0], [2.0, 3.0]]).to_sparse()
    >>> ts.sparse.sum(x), ts.sparse.sum(x, 0).to_dense()
    (tensor(6.), tensor([3., 3.]))
    """
    if not is_sparse(input):
        raise RuntimeError(f"sparse.sum: expected a sparse tensor, got layout {input.layout}")
    if input.layout is not COO:
        raise RuntimeError(f"sparse.sum: expected sparse coordinate tensor layout, got {input.layout}")
    if dim is None:
        t = coalesce(input) if recorded(input) else input
        return values_of(t).sum(dtype=dtype)
    dims = [dim] if isinstance(dim, int) else list(dim)
    dims = [_wrapped(d, input.dim()) for d in dims]
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"sparse.sum: dim appears multiple times in the list of dims {dims}")
    return _sum_dims(input, set(dims), dtype)


def _sum_dims(t: Tensor, dims: set[int], dtype: Any) -> Tensor:
    t = coalesce(t) if all(d >= parts_of(t).sparse_dim for d in dims) else t
    parts = parts_of(t)
    depth = parts.sparse_dim
    values = values_of(t)
    within = [d - depth + 1 for d in dims if d >= depth]
    if within:
        values = values.sum(within, dtype=dtype)
    elif dtype is not None:
        values = values.to(dtype)
    left = [d for d in range(depth) if d not in dims]
    size = tuple(n for d, n in enumerate(t.shape) if d not in dims)
    if not left:
        return values.sum(0)
    dense_dim = parts.dense_dim - len(within)
    if len(left) == depth:
        return build(COO, parts.indices, values, size, dense_dim, parts.coalesced)
    kept = parts.indices[0].index_select(0, ts.tensor(left, device=t.device))
    return coalesce(build(COO, (kept,), values, size, dense_dim))


# --- norms -----------------------------------------------------------------------------------------------------------


def _check_whole(op: str, self: Tensor, dim: Any, keepdim: bool) -> None:
    whole = dim is None or len(dim) == 0 or len({_wrapped(d, self.dim()) for d in dim}) == self.dim()
    if not whole or keepdim:
        raise RuntimeError(f"{op}: norm_sparse currently only supports full reductions, got dim={dim}, "
                           f"keepdim={keepdim}; try .to_dense()")  # fmt: skip


@kernel("norm")
def norm(self: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    if dtype is not None:
        raise RuntimeError(f"norm: expected no dtype= for a sparse tensor, got {dtype}; try .to({dtype}) before")
    return vector_norm(self, p, dim, keepdim)


@kernel("norm.name")
def norm_name(self: Tensor, p: str, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    if p != "fro":
        raise refuse(f"norm(p={p!r})", self)
    if dtype is not None:
        raise ValueError(
            f"norm: dtype argument is not supported in frobenius norm, got {dtype}; try .to({dtype}) before"
        )
    return norm(self, 2, dim, keepdim)


@kernel("linalg_vector_norm")
def vector_norm(self: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    _check_whole("norm", self, dim, keepdim)
    t = coalesce(self) if self.layout is COO else self
    values = values_of(t).reshape(-1)
    result: Tensor = ts.linalg.vector_norm(values, 2 if ord is None else ord, dtype=dtype)
    return result


# --- softmax ---------------------------------------------------------------------------------------------------------


def sparse_softmax(op: str, input: Tensor, dim: int, dtype: Any, logarithm: bool) -> Tensor:
    """Softmax along a dim, or its logarithm, over the elements that are there alone."""
    if not is_sparse(input) or input.layout is not COO:
        raise RuntimeError(f"sparse.{op}: expected a sparse coo tensor, got layout {input.layout}")
    if input.dim() == 0:
        raise RuntimeError(f"sparse.{op}: expected a tensor with dims, got a 0-d one")
    at = _wrapped(dim, input.dim())
    t = coalesce(input if dtype is None else input.to(dtype))
    if not t.is_floating_point():
        raise RuntimeError(f"sparse.{op}: expected a floating dtype, got {t.dtype}; pass dtype=")
    parts, values = parts_of(t), values_of(t)
    if at >= parts.sparse_dim:
        function = ts.log_softmax if logarithm else ts.softmax
        result = function(values, at - parts.sparse_dim + 1)
    else:
        result = _pool_softmax(t, values, at, logarithm)
    return build(COO, parts.indices, result, t.shape, parts.dense_dim, True)


def _pool_softmax(t: Tensor, values: Tensor, dim: int, logarithm: bool) -> Tensor:
    parts = parts_of(t)
    rest = [d for d in range(parts.sparse_dim) if d != dim]
    if values.shape[0] == 0:
        return values
    if rest:
        indices = parts.indices[0].index_select(0, ts.tensor(rest, device=t.device))
        pools = flat_positions(indices, [t.shape[d] for d in rest])
        unique, pool = pools.unique(return_inverse=True)
        count = unique.numel()
    else:
        pool, count = ts.zeros(values.shape[0], dtype=ts.int64, device=t.device), 1
    shape = (count, *values.shape[1:])
    with _native.no_grad():
        at = pool.reshape(-1, *[1] * (values.dim() - 1)).expand(values.shape)
        high = values.new_full(shape, float("-inf")).scatter_reduce(0, at, values.detach(), "amax")
        high = high.masked_fill(high.isinf(), 0)
    shifted = values - high.index_select(0, pool)
    powers = shifted.exp()
    total = powers.new_zeros(shape).index_add(0, pool, powers).index_select(0, pool)
    return shifted - total.log() if logarithm else powers / total
