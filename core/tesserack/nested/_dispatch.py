"""Nested tensors among the arguments of a call."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.nested._tensor import NestedTensor

__all__ = ["is_dense", "nested_among", "plain"]


def plain(value: Any) -> Any:
    """The values of a nested tensor; anything else itself."""
    return value.values() if isinstance(value, NestedTensor) else value


def nested_among(values: Any) -> list[NestedTensor]:
    """The nested tensors among some arguments."""
    return [v for v in values if isinstance(v, NestedTensor)]


def is_dense(value: Any) -> bool:
    """Whether it is a tensor that is not nested."""
    return isinstance(value, Tensor) and not isinstance(value, NestedTensor)
