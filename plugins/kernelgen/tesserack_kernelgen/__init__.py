"""Kernels for devices that are programmed in a dialect of C. Start with :class:`Card` and :class:`Dialect`."""

from __future__ import annotations

from tesserack_kernelgen.cache import DiskCache
from tesserack_kernelgen.card import Call, Card, Device, Statistics
from tesserack_kernelgen.dialect import PORTABLE_HALF, Dialect
from tesserack_kernelgen.host import HostCompiler
from tesserack_kernelgen.kernel import Kernel

__all__ = ["PORTABLE_HALF", "Call", "Card", "Device", "Dialect", "DiskCache", "HostCompiler", "Kernel", "Statistics"]
