"""``torch._dynamo.backends.common``."""

from __future__ import annotations

from typing import Any

from tesserack.jit._compile.aot import aot_autograd

__all__ = ["aot_autograd", "device_from_inputs", "dtype_from_inputs"]


def device_from_inputs(example_inputs: Any) -> Any:
    """The device of the first tensor."""
    return next(x.device for x in example_inputs if hasattr(x, "device"))


def dtype_from_inputs(example_inputs: Any) -> Any:
    """The dtype of the first tensor."""
    return next(x.dtype for x in example_inputs if hasattr(x, "dtype"))
