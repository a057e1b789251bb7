"""``hash_tensor``: the bits of all elements combined by exclusive or."""

from __future__ import annotations

from collections.abc import Sequence

import tesserack as ts
from tesserack import Tensor
from tesserack.ops.results import deliver

__all__ = ["hash_tensor"]


def _words(x: Tensor) -> Tensor:
    """The elements as 64 bits each: of floats those of float64."""
    if x.is_complex():
        raise NotImplementedError(f"hash_tensor: expected a real dtype, got {x.dtype}; try view_as_real")
    x = x.resolve_neg()
    if x.is_floating_point():
        return x.detach().double().view(ts.int64)
    return x.detach().view(ts.int64) if x.dtype is ts.uint64 else x.detach().to(ts.int64)


def hash_tensor(
    input: Tensor,
    dim: int | Sequence[int] | None = (),
    *,
    keepdim: bool = False,
    mode: int = 0,
    out: Tensor | None = None,
) -> Tensor:
    """The exclusive or of the elements, as 64-bit words, over ``dim`` (all dims if empty): uint64. ``mode`` is 0.

    It does not depend on the order of the elements.

    >>> import tesserack as ts
    >>> ts.hash_tensor(ts.tensor([1, 2, 4])).item()
    7
    """
    if mode != 0:
        raise RuntimeError(f"hash_tensor: expected mode 0, exclusive or, got {mode}")
    listed = (dim,) if isinstance(dim, int) else tuple(dim or ())
    if not listed and input.numel() == 0:
        raise RuntimeError("hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify the "
                           "reduction dim with the 'dim' argument.")  # fmt: skip
    rank = max(input.dim(), 1)
    for d in listed:
        if not -rank <= d < rank:
            raise IndexError(f"hash_tensor: Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], "
                             f"but got {d})")  # fmt: skip
        if input.dim() and input.shape[d] == 0:
            raise IndexError(f"hash_tensor: Expected reduction dim {d} to have non-zero size.")
    words = _words(input)
    dims = sorted({d % rank for d in listed} or range(input.dim()))
    for d in dims if input.dim() else ():
        words = _folded(words, d)
    if not keepdim and input.dim():
        words = words.reshape([n for d, n in enumerate(words.shape) if d not in dims])
    return deliver("hash_tensor", words.view(ts.uint64), out)


def _folded(words: Tensor, dim: int) -> Tensor:
    """One word along ``dim``, by halves."""
    if words.shape[dim] == 0:
        shape = list(words.shape)
        shape[dim] = 1
        return words.new_zeros(shape)
    while (n := words.shape[dim]) > 1:
        half = n // 2
        both = words.narrow(dim, 0, half) ^ words.narrow(dim, half, half)
        words = both if n % 2 == 0 else ts.cat([both, words.narrow(dim, n - 1, 1)], dim)
    return words
