"""Activations that are computed again in backward, without a wrapper."""

from __future__ import annotations

from typing import Any

from tesserack.distributed._composable._swapped import swapped
from tesserack.nn import Module
from tesserack.utils.checkpoint import checkpoint as recomputed

__all__ = ["checkpoint"]


class _Checkpointed:
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's, computed again in backward."""
        call = super().forward  # type: ignore[misc]
        return recomputed(call, *args, use_reentrant=False, **self.__dict__["_checkpointed_by"], **kwargs)


def checkpoint(module: Module, **kwargs: Any) -> Module:
    """Keep no activations of a module for backward, which computes them again; returns the module. Options are those
    of :func:`tesserack.utils.checkpoint.checkpoint`. ``ValueError`` for one that is so already.

    >>> import tesserack as ts
    >>> layer = checkpoint(ts.nn.Linear(2, 1))
    >>> layer(ts.ones(4, 2)).sum().backward()
    >>> layer.bias.grad
    tensor([4.])
    """
    kwargs.pop("use_reentrant", None)
    swapped(module, _Checkpointed, "Checkpointed")
    module.__dict__["_checkpointed_by"] = kwargs
    return module
