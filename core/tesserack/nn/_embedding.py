"""Rows of tables, alone and in bags, with the options that the native operators do not have."""

from __future__ import annotations

import warnings

import tesserack as ts
from tesserack import Tensor
from tesserack.ops.registry import operators

__all__ = ["embedding", "embedding_bag"]


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of bags of rows of ``weight`` (num, dim): (bags, dim).

    A 2-D ``input`` is one bag per row; of a 1-D one ``offsets`` says where each bag starts, and with
    ``include_last_offset`` where the last one ends. ``per_sample_weights`` multiply the rows of a sum. Rows equal to
    ``padding_idx`` are left out, empty bags are zero. ``max_norm``, ``scale_grad_by_freq`` and ``sparse`` as in
    :func:`embedding`; the last two not with the maximum.

    >>> import tesserack as ts
    >>> table = ts.arange(6.0).reshape(3, 2)
    >>> embedding_bag(ts.tensor([0, 2, 1]), table, ts.tensor([0, 2]), mode="sum").tolist()
    [[4.0, 6.0], [2.0, 3.0]]
    """
    if weight.dtype is ts.int64 and input.is_floating_point():
        warnings.warn("embedding_bag: the order of arguments was changed; give the indices first, then the weight",
                      stacklevel=2)  # fmt: skip
        input, weight = weight, input
    if max_norm is not None:
        _renorm_rows(weight, input, max_norm, norm_type)
    if scale_grad_by_freq or sparse:
        from tesserack.sparse import _embedding

        return _embedding.embedding_bag(
            input, weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx, scale_grad_by_freq,
            sparse,
        )  # fmt: skip
    return operators()["embedding_bag"](  # type: ignore[no-any-return]
        input, weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx
    )


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of ``weight`` (num, dim) at the integer ``input`` (*): (*, dim).

    The row ``padding_idx`` gets no gradient. ``max_norm`` first scales, in place, the rows in use down to that norm.
    ``scale_grad_by_freq`` divides the gradient of a row by how often it is in ``input``; with ``sparse`` the gradient
    of ``weight`` is a sparse tensor of the rows in use. Raises ``IndexError`` for an index outside the table,
    ``AssertionError`` for a bad ``padding_idx``.
    """
    if padding_idx is not None:
        rows = weight.shape[0]
        if not -rows <= padding_idx < rows:
            raise AssertionError(f"embedding: expected padding_idx within {rows} rows, got {padding_idx}")
        padding_idx %= rows
    if max_norm is not None:
        _renorm_rows(weight, input, max_norm, norm_type)
    if scale_grad_by_freq or sparse:
        from tesserack.sparse import _embedding

        return _embedding.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)
    return ts.embedding(input, weight, padding_idx)


def _renorm_rows(weight: Tensor, used: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the used rows whose norm exceeds ``max_norm`` down to it."""
    with ts.no_grad():
        rows = used.reshape(-1)
        values = weight.detach().index_select(0, rows)
        norms = values.norm(norm_type, 1, True)
        scale = ts.where(norms > max_norm, max_norm / (norms + 1e-7), ts.ones_like(norms))
        weight.detach()[rows] = values * scale
