"""Algorithms over ranks: joining ranks with uneven inputs, hooks that compress gradients."""

from tesserack.distributed.algorithms.join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]
