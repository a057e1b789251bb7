"""``torch._functorch.apis``: ``vmap`` and its kin."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.compat.shims._functorch.vmap import _broadcast_to_and_flatten
from tesserack.func import grad, grad_and_value, vmap
from tesserack.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["chunk_vmap", "grad", "grad_and_value", "vmap"]


def chunk_vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", chunks: int = 2
) -> Callable[..., Any]:
    """``vmap`` of a function in ``chunks`` calls, whose results are joined. ``ValueError`` for dims that do not fit."""

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        if chunks < 1:
            raise ValueError(f"chunk_vmap: expected at least one chunk, got chunks={chunks}")
        leaves, spec = tree_flatten(args)
        dims = _broadcast_to_and_flatten(in_dims if isinstance(in_dims, int) else tuple(in_dims), spec)
        if dims is None:
            raise ValueError(f"chunk_vmap: in_dims={in_dims!r} does not have the structure of the arguments")
        split = [x.chunk(chunks, d) if isinstance(x, Tensor) and d is not None else None
                 for x, d in zip(leaves, dims, strict=True)]  # fmt: skip
        count = max((len(parts) for parts in split if parts is not None), default=1)
        mapped = vmap(func, in_dims, out_dims, randomness)
        found = []
        before = ts.get_rng_state() if randomness == "same" else None
        for k in range(count):
            if before is not None:  # the same for the entries of every chunk
                ts.set_rng_state(before)
            given = [x if parts is None else parts[k] for x, parts in zip(leaves, split, strict=True)]
            found.append(tree_flatten(mapped(*tree_unflatten(given, spec), **kwargs)))
        shape = found[0][1]
        places = _broadcast_to_and_flatten(out_dims, shape)
        joined = [ts.cat(same, place) for place, same in zip(places, zip(*(f for f, _ in found), strict=True),
                                                             strict=True)]  # fmt: skip
        return tree_unflatten(joined, shape)

    return call
