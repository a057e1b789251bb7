"""Compiled kernels on disk: the cache that the core keeps for all cards."""

from __future__ import annotations

from tesserack.backends import KernelCache as DiskCache

__all__ = ["DiskCache"]
