"""``torch.onnx.symbolic_helper``: decorators of functions that exporting would call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["parse_args", "quantized_args"]


def parse_args(*descriptors: str) -> Callable[[Any], Any]:
    """A decorator that changes nothing."""
    return lambda function: function


def quantized_args(*arguments: bool, **options: Any) -> Callable[[Any], Any]:
    """A decorator that changes nothing."""
    return lambda function: function
