"""Copies of state dicts on the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed.checkpoint._items import is_divided

__all__ = ["copied"]


def copied(value: Any) -> Any:
    """A state dict whose tensors are copies, on the host."""
    if isinstance(value, Tensor):
        with ts.no_grad():
            if is_divided(value):
                divided: Any = value
                return type(divided)(copied(divided._local_tensor), divided._spec)
            return value.detach().cpu().clone() if value.device.type == "cpu" else value.detach().cpu()
    if isinstance(value, Mapping):
        return {key: copied(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(map(copied, value))
    return value
