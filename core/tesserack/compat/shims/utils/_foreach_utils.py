"""``torch.utils._foreach_utils``: lists of tensors sorted by device and dtype."""

from __future__ import annotations

from typing import Any

__all__: list[str] = []


def _group_tensors_by_device_and_dtype(
    tensorlistlist: list[list[Any]], with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
    """Parallel lists in groups, by the first list's devices and dtypes; with the places they had, if asked for."""
    groups: dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]] = {}
    for place, first in enumerate(tensorlistlist[0]):
        lists, places = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for own, given in zip(lists, tensorlistlist, strict=True):
            if given:
                own.append(given[place])
        if with_indices:
            places.append(place)
    return groups
