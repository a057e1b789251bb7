"""``torch._functorch.vmap``: helpers by PyTorch's names, of which packages build a ``vmap`` for their containers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack import Tensor
from tesserack.compat.shims._C._functorch import _add_batch_dim, _remove_batch_dim, is_batchedtensor
from tesserack.func import vmap
from tesserack.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

__all__ = ["Tensor", "TreeSpec", "_add_batch_dim", "_remove_batch_dim", "tree_flatten", "tree_unflatten", "vmap"]


def _get_name(func: Callable[..., Any]) -> str:
    return getattr(func, "__name__", None) or repr(func)


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """A value for each leaf of the structure, where ``tree`` may give one for a whole part of it; None if it does
    not fit."""
    flat, spec = tree_flatten(tree, is_leaf)
    if spec == treespec:
        return flat
    if spec.is_leaf():
        return flat * treespec.num_leaves
    given = spec.children_specs
    if spec.type is not treespec.type or spec.context != treespec.context or len(given) != len(treespec.children_specs):
        return None
    found: list[Any] = []
    at = 0
    for one, whole in zip(given, treespec.children_specs, strict=True):
        part = _broadcast_to_and_flatten(tree_unflatten(flat[at : at + one.num_leaves], one), whole, is_leaf)
        if part is None:
            return None
        at += one.num_leaves
        found += part
    return found


def _maybe_remove_batch_dim(name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: Any) -> Any:
    """A result with the entries of a call as its dim ``out_dim``. ``ValueError`` for what is no tensor, and for what
    differs from entry to entry where that is None."""
    if out_dim is None:
        if is_batchedtensor(batched_output):
            raise ValueError(f"vmap({name}, ...): can not return a BatchedTensor when out_dim is None")
        return batched_output
    if not isinstance(batched_output, Tensor):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(batched_output)}. "
            "Did you mean to set out_dims= to None for output?"
        )
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)
