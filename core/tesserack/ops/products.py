"""Operators whose PyTorch signatures take any number of tensors, or one argument of several forms."""

from __future__ import annotations

from tesserack.ops.registry import operators
from tesserack.ops.results import deliver

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tesserack._native import Tensor

__all__ = ["_chunk_cat", "block_diag", "chain_matmul", "einsum", "tensordot"]

_einsum = operators()["einsum"]
_tensordot = operators()["tensordot"]
_chain_matmul = operators()["chain_matmul"]
_block_diag = operators()["block_diag"]


def _letters(sublist: Sequence[Any]) -> str:
    """The term that a list of numbers from 0 to 51 and Ellipsis spells."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    listed = isinstance(sublist, (list, tuple))
    if not listed or not all(k is Ellipsis or (isinstance(k, int) and 0 <= k < len(alphabet)) for k in sublist):
        raise ValueError(
            f"einsum: expected a list of subscripts from 0 to {len(alphabet) - 1} or Ellipsis, got {sublist!r}"
        )
    return "".join("..." if k is Ellipsis else alphabet[k] for k in sublist)


def einsum(equation: str | Tensor, *operands: Any) -> Tensor:
    """Sum of products by Einstein's convention; the operands one by one or as one list.

    One letter names each dim, ``->`` the dims of the result, ``...`` stands for the rest; letters that the result
    leaves out are summed. Instead of letters, a list of numbers may follow each operand, and a last one name the
    result: ``einsum(a, [0, 1], b, [1, 2], [0, 2])``. Raises ``RuntimeError`` for an equation that does not fit the
    operands, ``ValueError`` for numbers beyond 51.

    >>> import tesserack as ts
    >>> ts.einsum("ij,jk->ik", ts.ones(2, 3), ts.ones(3, 4)).shape
    tesserack.Size([2, 4])
    """
    if not isinstance(equation, str):
        terms = (equation, *operands)
        pairs = len(terms) // 2 * 2
        text = ",".join(_letters(sublist) for sublist in terms[1:pairs:2])
        text += f"->{_letters(terms[-1])}" if len(terms) > pairs else ""
        return _einsum(text, terms[0:pairs:2])  # type: ignore[no-any-return]
    tensors = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    return _einsum(equation, tensors)  # type: ignore[no-any-return]


def tensordot(
    a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] | Tensor = 2, *, out: Tensor | None = None
) -> Tensor:
    """Products of ``a`` and ``b`` summed over dims: the last ``dims`` of ``a`` with the first of ``b``, or two lists.

    >>> import tesserack as ts
    >>> ts.tensordot(ts.ones(2, 3, 4), ts.ones(4, 3), dims=([2, 1], [0, 1])).tolist()
    [12.0, 12.0]
    """
    pairs = dims if isinstance(dims, (int, list, tuple)) else dims.tolist()  # type: ignore[union-attr]
    if isinstance(pairs, int):
        return _tensordot(a, b, pairs, out=out)  # type: ignore[no-any-return]
    first, second = ([d] if isinstance(d, int) else list(d) for d in pairs)
    return _tensordot(a, b, first, second, out=out)  # type: ignore[no-any-return]


def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """The product of matrices, from the left.

    >>> import tesserack as ts
    >>> ts.chain_matmul(ts.ones(1, 2), ts.ones(2, 3), ts.ones(3, 1)).item()
    6.0
    """
    from tesserack.utils.warnings import warn_once

    warn_once(
        "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use torch.linalg.multi_dot "
        "instead, which accepts a list of two or more tensors rather than multiple parameters."
    )
    return deliver("chain_matmul", _chain_matmul(matrices), out)


def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices one after another along the diagonal of a matrix of zeros; vectors are rows.

    >>> import tesserack as ts
    >>> ts.block_diag(ts.tensor([[1, 2]]), ts.tensor(3)).tolist()
    [[1, 2, 0], [0, 0, 3]]
    """
    return _block_diag(tensors)  # type: ignore[no-any-return]


def _chunk_cat(tensors: Sequence[Tensor], dim: int, num_chunks: int, *, out: Tensor | None = None) -> Tensor:
    """The tensors in ``num_chunks`` rows: each is cut into as many parts along ``dim``, zeros filling up the last ones,
    and the parts of one number, flattened from ``dim`` on, lie side by side.

    Their sizes before ``dim`` and their dtypes agree. ``RuntimeError`` for other tensors, for none, or for fewer than
    one chunk. FSDP of PyTorch gathers gradients by it.

    >>> import tesserack as ts
    >>> ts._chunk_cat([ts.tensor([1, 2, 3]), ts.tensor([4])], 0, 2)
    tensor([[1, 2, 4],
            [3, 0, 0]])
    """
    if num_chunks < 1:
        raise RuntimeError(f"_chunk_cat: expects positive num_chunks, got {num_chunks}")
    if not tensors:
        raise RuntimeError("_chunk_cat: expects a non-empty input tensor list")
    first = tensors[0]
    if not -first.ndim <= dim < first.ndim:
        raise IndexError(f"_chunk_cat: Dimension out of range (expected to be in range of [{-first.ndim}, "
                         f"{first.ndim - 1}], but got {dim})")  # fmt: skip
    dim %= first.ndim
    for t in tensors:
        if dim >= t.ndim or t.shape[:dim] != first.shape[:dim] or t.numel() == 0:
            raise RuntimeError(f"_chunk_cat: expects non-empty tensors of one shape before dim {dim}, got "
                               f"{[tuple(each.shape) for each in tensors]}")  # fmt: skip
        if t.dtype is not first.dtype or t.device != first.device:
            raise RuntimeError("_chunk_cat: expects all input tensors with the same dtype on one device, got "
                               f"{t.dtype} on {t.device} beside {first.dtype} on {first.device}")  # fmt: skip
    rows = [_chunks(t, dim, num_chunks) for t in tensors]
    return deliver("_chunk_cat", operators()["cat"](rows, dim + 1), out)


def _chunks(t: Tensor, dim: int, count: int) -> Tensor:
    missing = -t.shape[dim] % count
    if missing:
        t = operators()["cat"]([t, t.new_zeros((*t.shape[:dim], missing, *t.shape[dim + 1 :]))], dim)
    return t.reshape(*t.shape[:dim], count, -1)
