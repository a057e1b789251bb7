"""Whether parts make a sparse tensor, under the names that PyTorch's programs ask by."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.sparse._construct import sparse_compressed_tensor, sparse_coo_tensor

__all__ = [
    "_validate_sparse_bsc_tensor_args",
    "_validate_sparse_bsr_tensor_args",
    "_validate_sparse_compressed_tensor_args",
    "_validate_sparse_coo_tensor_args",
    "_validate_sparse_csc_tensor_args",
    "_validate_sparse_csr_tensor_args",
]


def _validate_sparse_coo_tensor_args(
    indices: Tensor, values: Tensor, size: Any, is_coalesced: bool | None = None, check_pinning: bool | None = None
) -> None:
    """``RuntimeError`` unless the parts make a coo tensor.

    >>> import tesserack as ts
    >>> _validate_sparse_coo_tensor_args(ts.tensor([[0, 1]]), ts.ones(2), (2,))
    """
    sparse_coo_tensor(indices, values, size, is_coalesced=is_coalesced, check_invariants=True)


def _validate_sparse_compressed_tensor_args(
    compressed_indices: Tensor,
    plain_indices: Tensor,
    values: Tensor,
    size: Any,
    layout: Any,
    check_pinning: bool | None = None,
) -> None:
    """``RuntimeError`` unless the parts make a tensor of that layout.

    >>> import tesserack as ts
    >>> _validate_sparse_compressed_tensor_args(ts.tensor([0, 1]), ts.tensor([0]), ts.ones(1), (1, 1), ts.sparse_csr)
    """
    sparse_compressed_tensor(compressed_indices, plain_indices, values, size, layout=layout, check_invariants=True)


def _of_layout(layout: Any) -> Any:
    def validate(
        compressed_indices: Tensor, plain_indices: Tensor, values: Tensor, size: Any, check_pinning: bool | None = None
    ) -> None:
        _validate_sparse_compressed_tensor_args(compressed_indices, plain_indices, values, size, layout)

    name = f"_validate_{str(layout).rpartition('.')[2]}_tensor_args"
    validate.__name__ = validate.__qualname__ = name
    validate.__doc__ = f"``RuntimeError`` unless the parts make a tensor of layout {layout}."
    return validate


_validate_sparse_csr_tensor_args = _of_layout(ts.sparse_csr)
_validate_sparse_csc_tensor_args = _of_layout(ts.sparse_csc)
_validate_sparse_bsr_tensor_args = _of_layout(ts.sparse_bsr)
_validate_sparse_bsc_tensor_args = _of_layout(ts.sparse_bsc)
