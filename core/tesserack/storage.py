"""Storages: the memory behind tensors, in bytes or in numbers of a dtype."""

from tesserack._typed_storage import TypedStorage
from tesserack._untyped_storage import UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
