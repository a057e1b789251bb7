"""Helpers around the library: :mod:`tesserack.utils.data` feeds batches, :mod:`tesserack.utils.hooks` removes hooks."""

from tesserack.utils import data, hooks

__all__ = ["data", "hooks"]
