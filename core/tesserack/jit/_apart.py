"""Sparse arguments and results of traces: taken apart into dense tensors, which are what a graph is given and gives."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor, _native
from tesserack.sparse import _parts as sparse
from tesserack.utils import _pytree as pytree

__all__ = ["apart"]


class _Apart:
    """A sparse tensor on its way into a graph. Trees keep its layout and sizes; how many elements it has may vary.
    A coo tensor is coalesced on the way: a program that was traced with such a one does not add up elements."""

    def __init__(self, tensor: Tensor, history: bool) -> None:
        tensor = sparse.coalesce(tensor) if tensor.layout is _native.sparse_coo else tensor
        parts = sparse.parts_of(tensor)
        self.tensors = [*parts.indices, sparse.values_of(tensor) if history else parts.values]
        self.kind = (parts.layout, tuple(tensor.shape), parts.dense_dim, parts.coalesced)


def _together(tensors: Any, kind: Any) -> Any:
    layout, size, dense_dim, coalesced = kind
    *indices, values = tensors
    if not isinstance(values, Tensor):  # a tree of something else in the places of tensors
        return tuple(tensors)
    return sparse.build(layout, tuple(indices), values, size, dense_dim, coalesced)


pytree.register_pytree_node(_Apart, lambda made: (made.tensors, made.kind), _together)


def _is_sparse(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.layout is not _native.strided and leaf.layout is not _native.jagged


def apart(tree: Any, history: bool = True) -> Any:
    """The tree with its sparse tensors taken apart: flattening it gives dense ones, and putting what was flattened
    together gives sparse ones again. Without ``history`` no gradient passes from the dense ones back.

    >>> import tesserack as ts
    >>> len(pytree.tree_leaves(apart([ts.eye(2).to_sparse()])))
    2
    """
    if not any(map(_is_sparse, pytree.tree_leaves(tree))):
        return tree
    return pytree.tree_map(lambda leaf: _Apart(leaf, history) if _is_sparse(leaf) else leaf, tree)
