"""Functions of nested structures as functions of lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack import Tensor
from tesserack.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

__all__ = ["Flat", "is_tensor", "leaves_of"]


def is_tensor(x: Any) -> bool:
    """Whether a leaf is a tensor, or stands for one as entries under ``vmap`` do."""
    return isinstance(x, Tensor)


def leaves_of(tree: Any) -> list[Any]:
    """The leaves of a structure, in order."""
    return tree_flatten(tree)[0]


class Flat:
    """``fn`` as a function of leaves, which returns leaves; ``out_spec`` is the structure of its last results.

    Arguments after those of ``spec`` are what ``fn`` closes over, which a tracer hands to graphs made of it; ``fn`` has
    them already.
    """

    def __init__(self, fn: Callable[..., Any], spec: TreeSpec, name: str) -> None:
        self.fn, self.spec, self.__name__ = fn, spec, name
        self.out_spec: TreeSpec | None = None

    def __call__(self, *leaves: Any) -> list[Any]:
        found = self.fn(*tree_unflatten(list(leaves[: self.spec.num_leaves]), self.spec))
        flat, self.out_spec = tree_flatten(found)
        return flat

    def restored(self, leaves: Any) -> Any:
        """Leaves in the structure of the last results."""
        assert self.out_spec is not None
        return tree_unflatten(list(leaves), self.out_spec)
