"""Helpers around the library: :mod:`tesserack.utils.data` feeds batches, :mod:`tesserack.utils.hooks` removes hooks,
:mod:`tesserack.utils.checkpoint` computes activations again instead of keeping them."""

from tesserack.utils import checkpoint, data, hooks

__all__ = ["checkpoint", "data", "hooks"]
