"""Storages: the memory behind tensors, in bytes or in numbers of a dtype."""

from tesserack.storage._typed import TypedStorage
from tesserack.storage._untyped import UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
