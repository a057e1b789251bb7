"""Products of matrices of which one or both are sparse.

A sparse matrix times a dense one is one kernel over compressed rows (``_csr_mm``) on the device of the parts. How the
elements of a pattern lie by rows and by columns is worked out once and kept with the index tensor, so a graph whose
edges do not change pays for it in the first step alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.autograd.function import Function
from tesserack.sparse._convert import to_coo, to_layout
from tesserack.sparse._dispatch import assign, differentiable, in_place, kernel, layout_name, refuse
from tesserack.sparse._parts import (
    BLOCKED,
    COO,
    CSC,
    CSR,
    build,
    coalesce,
    compress,
    expand_compressed,
    is_sparse,
    like,
    parts_of,
    recorded,
    values_at,
    values_of,
)

__all__ = ["hspmm", "masked_mm", "product", "sampled_addmm", "smm", "spmm_reduce", "sspaddmm"]

_csr_mm = _native._operator_function("_csr_mm")


class Order(NamedTuple):
    """The elements of a matrix row by row: where rows begin, columns, and which element each is (None: as it is)."""

    heads: Tensor
    columns: Tensor
    order: Tensor | None


class Pattern:
    """Where the elements of a sparse matrix stand, for products with it and with its transpose."""

    def __init__(self, rows: Tensor | None, columns: Tensor | None, size: tuple[int, int]) -> None:
        self.size = size
        self._rows, self._columns = rows, columns
        self._forward: Order | None = None
        self._backward: Order | None = None

    @staticmethod
    def of(t: Tensor) -> Pattern:
        """That of a matrix, kept with its indices until they change."""
        parts = parts_of(t)
        holder = parts.indices[-1]
        if holder.is_inference() or _native._is_tracing():  # a graph finds it from the indices that it is given
            return Pattern._made(parts, (t.shape[0], t.shape[1]))
        # Versions tell of changes; the storage is held by what is kept, so an address is one tensor's.
        places = tuple((part._version, part.data_ptr(), part.shape, part.stride()) for part in parts.indices)
        key = (places, parts.layout, parts.coalesced, tuple(t.shape[:2]))
        kept = holder.__dict__.get("_pattern")
        if kept is not None and kept[0] == key:
            found: Pattern = kept[1]
            return found
        made = Pattern._made(parts, (t.shape[0], t.shape[1]))
        holder.__dict__["_pattern"] = (key, made)
        return made

    @staticmethod
    def _made(parts: Any, size: tuple[int, int]) -> Pattern:
        if parts.layout is COO:
            # Detached: what is kept with the indices must not keep them.
            rows, columns = (axis.contiguous().detach() for axis in parts.indices[0].unbind(0))
            made = Pattern(rows, columns, size)
            if parts.coalesced:
                made._forward = Order(compress(rows, size[0]), columns, None)
            return made
        heads, plain = (part.contiguous().detach() for part in parts.indices)
        made = Pattern(None, None, size)
        if parts.layout is CSR:
            made._forward, made._columns = Order(heads, plain, None), plain
        else:
            made._backward, made._rows = Order(heads, plain, None), plain
        return made

    @property
    def rows(self) -> Tensor:
        """The row of every element, in their order."""
        if self._rows is None:
            self._rows = expand_compressed(self.forward.heads)
        return self._rows

    @property
    def columns(self) -> Tensor:
        """The column of every element, in their order."""
        if self._columns is None:
            self._columns = expand_compressed(self.backward.heads)
        return self._columns

    @property
    def forward(self) -> Order:
        """For products with the matrix."""
        if self._forward is None:
            self._forward = _ordered(self.rows, self.columns, self.size[0])
        return self._forward

    @property
    def backward(self) -> Order:
        """For products with its transpose."""
        if self._backward is None:
            self._backward = _ordered(self.columns, self.rows, self.size[1])
        return self._backward


def _ordered(outer: Tensor, inner: Tensor, extent: int) -> Order:
    outer, order = outer.sort(stable=True)
    return Order(compress(outer, extent), inner.index_select(0, order), order)


def _multiplied(order: Order, values: Tensor, dense: Tensor) -> Tensor:
    if order.order is not None:
        values = values.index_select(0, order.order)
    result: Tensor = _csr_mm(order.heads, order.columns, values, dense)
    return result


class _Product(Function):
    """A sparse matrix, by pattern and values, times a dense one; transposed if asked for."""

    _node_name = "SparseAddmmBackward0"

    @staticmethod
    def forward(ctx: Any, values: Tensor, dense: Tensor, pattern: Pattern, transposed: bool) -> Tensor:
        ctx.save_for_backward(values, dense)
        ctx.pattern, ctx.transposed = pattern, transposed
        return _multiplied(pattern.backward if transposed else pattern.forward, values, dense)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        values, dense = ctx.saved_tensors
        pattern, transposed = ctx.pattern, ctx.transposed
        of_values = of_dense = None
        if ctx.needs_input_grad[0]:
            rows, columns = pattern.rows, pattern.columns
            if transposed:
                rows, columns = columns, rows
            of_values = (grad.index_select(0, rows) * dense.index_select(0, columns).conj()).sum(1)
        if ctx.needs_input_grad[1]:
            of_dense = product(pattern, values.conj(), grad, not transposed)
        return of_values, of_dense, None, None


def product(pattern: Pattern, values: Tensor, dense: Tensor, transposed: bool = False) -> Tensor:
    """The matrix of that pattern, or its transpose, times a dense matrix."""
    if recorded(values, dense) and not _native._is_tracing():  # in graphs: the operator, of the same gradient
        result: Tensor = _Product.apply(values, dense, pattern, transposed)
        return result
    return _multiplied(pattern.backward if transposed else pattern.forward, values, dense)


# --- mm --------------------------------------------------------------------------------------------------------------


def _check_matrices(op: str, a: Tensor, b: Tensor) -> None:
    for name, t in (("self", a), ("mat2", b)):
        if t.dim() != 2 or (is_sparse(t) and parts_of(t).dense_dim):
            raise RuntimeError(f"{op}: Expected {name} to be a matrix, got shape {tuple(t.shape)}"
                               + (f" with {parts_of(t).dense_dim} dense dims" if is_sparse(t) else ""))  # fmt: skip
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"{op}: mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})"
        )
    if a.dtype is not b.dtype:
        raise RuntimeError(f"{op}: expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}")


def _unblocked(t: Tensor) -> Tensor:
    return to_layout(t, CSR) if t.layout in BLOCKED else t


def _sparse_dense(a: Tensor, b: Tensor) -> Tensor:
    a = _unblocked(a)
    return product(Pattern.of(a), values_of(a), b)


def _dense_sparse(a: Tensor, b: Tensor) -> Tensor:
    b = _unblocked(b)
    return product(Pattern.of(b), values_of(b), a.t(), True).t()


def _sparse_sparse(a: Tensor, b: Tensor) -> Tensor:
    """Every element of a meets the row of b that its column names."""
    layout = a.layout
    a, b = coalesce(to_coo(a)), coalesce(to_coo(b))
    rows, inner = parts_of(a).indices[0].unbind(0)
    order = Pattern.of(b).forward
    begin = order.heads.index_select(0, inner)
    counts = order.heads.index_select(0, inner + 1) - begin
    which = ts.arange(rows.numel(), device=rows.device).repeat_interleave(counts)
    before = counts.cumsum(0) - counts
    at = ts.arange(which.numel(), device=rows.device) - before.index_select(0, which) + begin.index_select(0, which)
    values = values_of(a).index_select(0, which) * values_of(b).index_select(0, at)
    places = ts.stack([rows.index_select(0, which), order.columns.index_select(0, at)])
    result = coalesce(build(COO, (places,), values, (a.shape[0], b.shape[1])))
    return result if layout is COO else to_layout(result, CSR if layout in BLOCKED else layout)


def masked_mm(op: str, a: Tensor, b: Tensor) -> Tensor:
    """The product, where a sparse factor's gradient has its pattern."""
    _check_matrices(op, a, b)
    if is_sparse(a) and is_sparse(b):
        return _sparse_sparse(a, b)
    if is_sparse(a):
        return _sparse_dense(a, b)
    return _dense_sparse(a, b)


def _mm_forward(a: Tensor, b: Tensor) -> Tensor:
    return masked_mm("mm", a, b)


def _mm_gradient(ctx: Any, grad: Tensor, a: Tensor, b: Tensor) -> tuple[Any, ...]:
    of_a = grad @ _adjoint(b) if ctx.needs_input_grad[0] else None
    of_b = _adjoint(a) @ grad if ctx.needs_input_grad[1] else None
    return of_a, of_b


def _adjoint(t: Tensor) -> Tensor:
    return t.t().conj() if t.is_complex() else t.t()


# As PyTorch's mm, whose sparse factor has a dense gradient; that of sparse.mm is sparse.
_mm_dense_gradient = differentiable("MmBackward0", _mm_forward, _mm_gradient)


@kernel("mm")
def mm(self: Tensor, mat2: Tensor) -> Tensor:
    if is_sparse(self) and is_sparse(mat2):
        return masked_mm("mm", self, mat2)
    sparse = self if is_sparse(self) else mat2
    if recorded(sparse) and sparse.layout is not CSC:
        _check_matrices("mm", self, mat2)
        return _mm_dense_gradient(self, mat2)
    return masked_mm("mm", self, mat2)


@kernel("mv")
def mv(self: Tensor, vec: Tensor) -> Tensor:
    if not is_sparse(self) or is_sparse(vec):
        raise refuse("mv", vec, "expected a sparse matrix and a dense vector")
    if vec.dim() != 1 or self.dim() != 2 or self.shape[1] != vec.shape[0]:
        raise RuntimeError(f"mv: size mismatch, got mat of shape {tuple(self.shape)}, vec {tuple(vec.shape)}")
    return ts.mm(self, vec.unsqueeze(1)).squeeze(1)


@kernel("bmm")
def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    if not is_sparse(self) or is_sparse(mat2):
        name = "mat2" if is_sparse(mat2) else "self"
        raise RuntimeError(f"bmm_sparse: Tensor '{name}' must be {'dense' if is_sparse(mat2) else 'sparse'}")
    if self.dim() != 3 or mat2.dim() != 3 or self.shape[0] != mat2.shape[0] or self.shape[2] != mat2.shape[1]:
        raise RuntimeError(
            f"bmm: expected batches of matrices that fit, got shapes {tuple(self.shape)} and {tuple(mat2.shape)}"
        )
    t = to_coo(self)
    if parts_of(t).dense_dim:
        raise refuse("bmm", self)
    batch, rows, inner = t.shape
    which, row, column = parts_of(t).indices[0].unbind(0)
    places = ts.stack([which * rows + row, which * inner + column])
    wide = build(COO, (places,), values_of(t), (batch * rows, batch * inner), 0, parts_of(t).coalesced)
    columns = mat2.shape[2]
    return _sparse_dense(wide, mat2.reshape(batch * inner, columns)).reshape(batch, rows, columns)


@kernel("matmul")
def matmul(self: Tensor, other: Tensor) -> Tensor:
    if self.dim() == 2 and other.dim() == 2:
        return ts.mm(self, other)
    if self.dim() == 2 and other.dim() == 1:
        return ts.mv(self, other)
    if self.dim() == 1 and other.dim() == 2 and is_sparse(other):
        return ts.mv(other.t(), self)
    if self.dim() == 3 and other.dim() == 3:
        return ts.bmm(self, other)
    raise refuse("matmul", self if is_sparse(self) else other, f"got shapes {tuple(self.shape)} and "
                 f"{tuple(other.shape)}; expected matrices, or a matrix and a vector")  # fmt: skip


@kernel("linear")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    flat = input.reshape(-1, input.shape[-1]) if input.dim() != 2 and not is_sparse(input) else input
    result = ts.mm(flat, weight.t())
    result = result if bias is None else result + bias
    return result if flat is input else result.reshape(*input.shape[:-1], -1)


# --- sums with products ----------------------------------------------------------------------------------------------


def add_product(op: str, self: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any, masked: bool) -> Tensor:
    """``beta * self + alpha * (mat1 @ mat2)``."""
    result = masked_mm(op, mat1, mat2) if masked else ts.mm(mat1, mat2)
    if alpha != 1:
        result = result * alpha
    if beta == 0:
        if is_sparse(self):
            return result if is_sparse(result) else refuse_sum(op, self, result)
        return result.to_dense() if is_sparse(result) else result
    scaled = self if beta == 1 else self * beta
    if is_sparse(scaled) and not is_sparse(result):
        refuse_sum(op, self, result)
    if is_sparse(scaled) and is_sparse(result) and scaled.layout is not result.layout:
        result = to_coo(result) if scaled.layout is COO else to_layout(result, scaled.layout)
    return scaled + result


def refuse_sum(op: str, self: Tensor, result: Tensor) -> Tensor:
    """The error where a dense product would be added to a sparse matrix."""
    raise RuntimeError(
        f"{op}: expected self to be dense, as the product is, got layout {layout_name(self)}, shape "
        f"{tuple(self.shape)}; try .to_dense()"
    )


@kernel("addmm")
def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return add_product("addmm", self, mat1, mat2, beta, alpha, False)


@kernel("addmm_")
def addmm_(self: Tensor, mat1: Tensor, mat2: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    result = add_product("addmm_", self, mat1, mat2, beta, alpha, False)
    return assign(self, result, "addmm_") if is_sparse(self) else self.copy_(result)


@kernel("addmv")
def addmv(self: Tensor, mat: Tensor, vec: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    result: Tensor = ts.mv(mat, vec) * alpha
    return result if beta == 0 else self * beta + result


@in_place("addmv_")
def addmv_(self: Tensor, mat: Tensor, vec: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return addmv(self, mat, vec, beta, alpha)


# --- under torch's other names ---------------------------------------------------------------------------------------


def smm(input: Tensor, mat2: Tensor) -> Tensor:
    """A sparse matrix times a dense one, as a sparse matrix (coo)."""
    zeros = ts.sparse_coo_tensor((input.shape[0], mat2.shape[1]), dtype=input.dtype, device=input.device)
    return sspaddmm(zeros, input, mat2)


def sspaddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)`` of two sparse matrices and a dense one, as a sparse matrix (coo).

    The result has an element in every column of a row of mat1 that has elements, and is not coalesced.
    """
    if not is_sparse(input) or not is_sparse(mat1) or is_sparse(mat2):
        raise RuntimeError(
            f"sspaddmm: expected two sparse matrices and a dense one, got layouts {layout_name(input)}, "
            f"{layout_name(mat1)} and {layout_name(mat2)}"
        )
    _check_matrices("sspaddmm", mat1, mat2)
    rows = parts_of(coalesce(to_coo(mat1))).indices[0][0].unique()
    picked = _sparse_dense(mat1, mat2).index_select(0, rows) * alpha
    width = mat2.shape[1]
    columns = ts.arange(width, device=rows.device)
    places = ts.stack([rows.repeat_interleave(width), columns.repeat(rows.numel())])
    t = to_coo(input)
    old = values_of(t) if beta == 1 else values_of(t) * beta
    return build(COO, (ts.cat([parts_of(t).indices[0], places], 1),), ts.cat([old, picked.reshape(-1)]), input.shape)


def hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """A sparse matrix times a dense one, as a coo tensor of one sparse and one dense dim."""
    if not is_sparse(mat1) or is_sparse(mat2):
        raise RuntimeError("hspmm: expected a sparse matrix and a dense one")
    _check_matrices("hspmm", mat1, mat2)
    rows = parts_of(coalesce(to_coo(mat1))).indices[0][0].unique()
    values = _sparse_dense(mat1, mat2).index_select(0, rows)
    return build(COO, (rows.unsqueeze(0),), values, (mat1.shape[0], mat2.shape[1]), 1, True)


def sampled_addmm(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: Any = 1.0,
    alpha: Any = 1.0,
    out: Tensor | None = None,
) -> Tensor:
    """``alpha * (mat1 @ mat2) * pattern(input) + beta * input``: the product in the places of a csr matrix alone.

    >>> import tesserack as ts
    >>> pattern = ts.eye(2).to_sparse_csr()
    >>> ts.sparse.sampled_addmm(pattern, ts.ones(2, 3), ts.ones(3, 2)).values()
    tensor([4., 4.])
    """
    if input.layout is not CSR or is_sparse(mat1) or is_sparse(mat2):
        raise RuntimeError(
            f"sampled_addmm: Expected self to have layout sparse_csr and dense factors, got {layout_name(input)}, "
            f"{layout_name(mat1)} and {layout_name(mat2)}"
        )
    if mat1.shape[-1] != mat2.shape[-2] or (mat1.shape[-2], mat2.shape[-1]) != tuple(input.shape[-2:]):
        raise RuntimeError(
            f"sampled_addmm: mat1 and mat2 shapes cannot be multiplied to the shape of self: {tuple(mat1.shape)} and "
            f"{tuple(mat2.shape)}, self {tuple(input.shape)}"
        )
    if input.dim() == 2:
        pattern = Pattern.of(input)
        rows = mat1.index_select(0, pattern.rows)
        inner = (rows * mat2.t().index_select(0, pattern.columns)).sum(1)
    else:
        inner = values_at(mat1 @ mat2, input)
    values = inner * alpha
    result = like(input, values + values_of(input) * beta if beta != 0 else values)
    return result if out is None else assign(out, result, "sampled_addmm")


def spmm_reduce(op: str, a: Tensor, b: Tensor, reduce: str) -> Tensor:
    """As a product, with the mean, the largest or the smallest of each row's terms instead of their sum."""
    if a.layout is not CSR or is_sparse(b):
        raise RuntimeError(f"{op}: expected a csr and a dense matrix with reduce, got {layout_name(a)} and "
                           f"{layout_name(b)}")  # fmt: skip
    _check_matrices(op, a, b)
    names = {"sum": "sum", "mean": "mean", "amax": "amax", "amin": "amin", "max": "amax", "min": "amin"}
    if reduce not in names:
        raise RuntimeError(f"{op}: reduce argument must be either sum, mean, amax or amin, got {reduce}")
    if reduce == "sum":
        return masked_mm(op, a, b)
    pattern = Pattern.of(a)
    terms = values_of(a).unsqueeze(1) * b.index_select(0, pattern.columns)
    at = pattern.rows.unsqueeze(1).expand_as(terms).long()
    zeros = terms.new_zeros((a.shape[0], b.shape[1]))
    result: Tensor = zeros.scatter_reduce(0, at, terms, names[reduce], include_self=False)
    return result


@kernel("triangular_solve")
def triangular_solve(
    self: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    if is_sparse(self) or a.layout is COO:
        raise refuse("triangular_solve", self if is_sparse(self) else a)
    if not parts_of(a).values.numel() and not unitriangular:
        return ts.full_like(self, float("nan")), self.new_empty(0)
    solved = ts.triangular_solve(self, a.to_dense(), upper, transpose, unitriangular)
    return solved[0].contiguous(), self.new_empty(0)
