"""Products of groups of rows, or columns, of one matrix, each with a matrix of its own: the layers of experts."""

from __future__ import annotations

import itertools
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["grouped_mm"]


def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """A product for each group, where a matrix of two dims holds the groups one after the other.

    Group ``g`` of a matrix of two dims ends at ``offs[g]`` and begins where the one before ends. Of shapes (T, K) and
    (G, K, N), rows are grouped and the result is (T, N); of (G, M, K) and (K, T), columns are, and it is (M, T); of
    (M, T) and (T, N) the dim that is summed over is, and it is (G, M, N). (G, M, K) and (G, K, N) have no ``offs``:
    that is :func:`tesserack.bmm`. What lies beyond ``offs[-1]`` is not read, and is 0 in the result. ``offs`` (int32)
    is read on the host.

    Raises ``RuntimeError`` for other shapes, for dtypes that differ or are not floating, for ``bias``, which PyTorch
    has not either, for another ``out_dtype`` than that of ``mat_a``, and for ``offs`` that decrease or go beyond the
    end.

    >>> import tesserack as ts
    >>> rows, experts = ts.ones(3, 2), ts.tensor([[[1.0], [1.0]], [[2.0], [2.0]]])
    >>> grouped_mm(rows, experts, offs=ts.tensor([1, 3], dtype=ts.int32)).tolist()
    [[2.0], [4.0], [4.0]]
    """
    _check(mat_a, mat_b, offs, bias, out_dtype)
    if offs is None:
        return ts.bmm(mat_a, mat_b)
    rows, columns = mat_a.ndim == 2, mat_b.ndim == 2
    length = int(mat_a.shape[1 if columns else 0] if rows else mat_b.shape[1])
    groups = int(offs.shape[0])
    _check_groups(mat_a, mat_b, groups)
    if mat_a.is_meta:
        shape = (groups, mat_a.shape[0], mat_b.shape[1]) if rows and columns else (mat_a.shape[-2], mat_b.shape[-1])
        return mat_a.new_empty(shape)
    bounds = _bounds(offs, length)
    spans = [*itertools.pairwise(bounds)]
    if rows and columns:
        return ts.stack([mat_a[:, i:j] @ mat_b[i:j] for i, j in spans])
    if rows:
        parts = [mat_a[i:j] @ mat_b[g] for g, (i, j) in enumerate(spans)]
        return ts.cat([*parts, mat_a.new_zeros(length - bounds[-1], mat_b.shape[2])])
    parts = [mat_a[g] @ mat_b[:, i:j] for g, (i, j) in enumerate(spans)]
    return ts.cat([*parts, mat_a.new_zeros(mat_a.shape[1], length - bounds[-1])], dim=1)


def _check(mat_a: Tensor, mat_b: Tensor, offs: Tensor | None, bias: Tensor | None, out_dtype: Any) -> None:
    for name, mat in (("mat_a", mat_a), ("mat_b", mat_b)):
        if mat.ndim not in (2, 3):
            raise RuntimeError(f"grouped_mm: {name} has to be 2 or 3d, got shape {tuple(mat.shape)}")
        if not mat.is_floating_point():
            raise RuntimeError(f"grouped_mm: expected {name} to be of a floating dtype, got {mat.dtype}")
    if mat_a.dtype != mat_b.dtype:
        raise RuntimeError(
            f"grouped_mm: expected m1 and m2 to have the same dtype, but got: {mat_a.dtype} != {mat_b.dtype}"
        )
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError(
            f"grouped_mm: contraction dimension of mat_a and mat_b must match, got shapes {tuple(mat_a.shape)} and "
            f"{tuple(mat_b.shape)}"
        )
    if (offs is None) != (mat_a.ndim == mat_b.ndim == 3):
        raise RuntimeError(
            "grouped_mm: Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d"
        )
    if offs is not None and (offs.ndim != 1 or offs.dtype != ts.int32):
        raise RuntimeError(f"grouped_mm: Offsets have to be int32, in one dim, got {offs.dtype} of {tuple(offs.shape)}")
    if bias is not None:
        raise RuntimeError("grouped_mm: Bias not supported yet; add it to the result")
    if out_dtype is not None and out_dtype != mat_a.dtype:
        raise RuntimeError(f"grouped_mm: output dtype must match `mat_a` dtype, got {out_dtype} and {mat_a.dtype}")


def _check_groups(mat_a: Tensor, mat_b: Tensor, groups: int) -> None:
    for mat in (mat_a, mat_b):
        if mat.ndim == 3 and mat.shape[0] != groups:
            raise RuntimeError(f"grouped_mm: matrix batch sizes have to match, got {mat.shape[0]} for {groups} offsets")


def _bounds(offs: Tensor, length: int) -> list[int]:
    bounds = [0, *offs.tolist()]
    if any(i > j for i, j in itertools.pairwise(bounds)) or bounds[-1] > length:
        raise RuntimeError(f"grouped_mm: expected offsets that grow, from 0 to {length} at most, got {bounds[1:]}")
    return bounds
