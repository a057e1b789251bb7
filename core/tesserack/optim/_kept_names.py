"""What optimizers written against PyTorch ask of their base class, besides its interface."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["Inherited", "group_by_device_and_dtype"]

Lists = list[list[Any]]


def group_by_device_and_dtype(
    tensorlistlist: Lists, with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[Lists, list[int]]]:
    """Parallel lists in groups, by the first list's devices and dtypes; with the places they had, if asked for."""
    groups: dict[tuple[Any, Any], tuple[Lists, list[int]]] = {}
    for place, first in enumerate(tensorlistlist[0]):
        lists, places = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for own, given in zip(lists, tensorlistlist, strict=True):
            if given:
                own.append(given[place])
        if with_indices:
            places.append(place)
    return groups


class Inherited:
    """Of :class:`Optimizer`: names that steps copied from PyTorch's optimizers call."""

    def _cuda_graph_capture_health_check(self) -> None:
        """Nothing: a recording refuses what it cannot hold when it meets it."""

    _accelerator_graph_capture_health_check = _cuda_graph_capture_health_check

    @staticmethod
    def _group_tensors_by_device_and_dtype(
        tensorlistlist: Lists, with_indices: bool = False
    ) -> dict[tuple[Any, Any], tuple[Lists, list[int]]]:
        return group_by_device_and_dtype(tensorlistlist, with_indices)

    @staticmethod
    def _process_value_according_to_param_policy(
        param: Tensor, value: Tensor, param_id: int, param_groups: list[dict[str, Any]], key: Hashable = None
    ) -> Tensor:
        """A saved value as a step needs it: with its parameter, but for counts of steps."""
        group = next((group for group in param_groups if param_id in group["params"]), {})
        if key == "step":
            on_card = group.get("fused") or group.get("capturable")
            return value.to(dtype=ts.float32, device=param.device) if on_card else value
        return value.to(dtype=param.dtype if param.is_floating_point() else None, device=param.device)
