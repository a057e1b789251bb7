"""``torch._C._nn``: functions of ``torch.nn.functional`` under the module that defines them in PyTorch."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack.compat.shims._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from tesserack.nn import functional
from tesserack.nn.modules._convert import parse_to as _parsed

__all__: list[str] = []

flatten_dense_tensors, unflatten_dense_tensors = _flatten_dense_tensors, _unflatten_dense_tensors


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """Device, dtype, whether to block and memory format of a ``Module.to`` call."""
    device, dtype, options = _parsed(args, kwargs)
    place = None if device is None else ts.device(device)
    return place, dtype, options.get("non_blocking", False), options.get("memory_format")


def __dir__() -> list[str]:
    shared = {*functional.__all__}.intersection(dir(ts))
    return sorted({*shared, "_parse_to", "flatten_dense_tensors", "linear", "unflatten_dense_tensors"})


def __getattr__(name: str) -> Any:
    for module in (functional, ts):
        if not name.startswith("__") and hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
