"""``torch.storage``: the tables between dtypes and the names of their storages, which programs that read files ask."""

from __future__ import annotations

from tesserack._native import dtype
from tesserack.storage import TypedStorage, UntypedStorage
from tesserack.storage._typed import LEGACY

__all__ = ["TypedStorage", "UntypedStorage"]


def _dtype_to_storage_type_map() -> dict[dtype, str]:
    """The name of each dtype's storage class."""
    return {kind.dtype: kind.__name__ for kind in LEGACY.values()}


def _storage_type_to_dtype_map() -> dict[str, dtype]:
    """The dtype of each storage class's numbers, by the class's name."""
    return {name: kind for kind, name in _dtype_to_storage_type_map().items()}
