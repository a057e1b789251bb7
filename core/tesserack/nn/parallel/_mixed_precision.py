"""Computing in narrow dtypes with parameters kept wide, in data-parallel training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tesserack import Tensor
from tesserack.nn.modules.module import Module
from tesserack.nn.utils.stateless import replaced

__all__ = ["called", "cast_buffers"]


@dataclass(frozen=True)
class _MixedPrecision:
    """Dtypes of parameters and inputs in forward and backward, of reductions (by default the parameters') and of
    buffers; None leaves them. Parameters outside of forward, their gradients and optimizers stay as they are."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None

    @property
    def reduced_in(self) -> Any:
        """The dtype of reductions; None for the gradients' own."""
        return self.param_dtype if self.reduce_dtype is None else self.reduce_dtype


def _cast(value: Any, dtype: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        return type(value)((key, _cast(each, dtype)) for key, each in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_cast(each, dtype) for each in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(each, dtype) for each in value)
    return value


def cast_buffers(module: Module, dtype: Any, ignored: set[str]) -> None:
    """Have the buffers in a dtype from now on."""
    for name, buffer in module.named_buffers():
        if name not in ignored and buffer.is_floating_point() and dtype is not None:
            buffer.data = buffer.to(dtype)


def called(module: Module, call: Any, dtype: Any, ignored: set[str], inputs: Any, kwargs: Any) -> Any:
    """What ``call`` of the module returns, computed in a dtype: gradients come to the parameters through the cast."""
    narrow = {n: _cast(p, dtype) for n, p in module.named_parameters() if n not in ignored}
    with replaced(module, narrow, tie_weights=True):
        return call(*_cast(tuple(inputs), dtype), **_cast(kwargs, dtype))
