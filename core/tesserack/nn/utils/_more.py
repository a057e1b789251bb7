"""Memory formats of convolutions' weights, and modules without initial values."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

import tesserack as ts
from tesserack.nn.modules.conv import Conv2d, Conv3d
from tesserack.nn.modules.conv_transpose import ConvTranspose2d, ConvTranspose3d
from tesserack.nn.modules.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format", "skip_init"]

M = TypeVar("M", bound=Module)


def convert_conv2d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Lay the weights of all 2-d convolutions out in ``memory_format``; returns the module.

    >>> import tesserack as ts
    >>> from tesserack import nn
    >>> conv = convert_conv2d_weight_memory_format(nn.Conv2d(2, 3, 2), ts.channels_last)
    >>> conv.weight.is_contiguous(memory_format=ts.channels_last)
    True
    """
    return _converted(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Lay the weights of all 3-d convolutions out in ``memory_format``; returns the module."""
    return _converted(module, memory_format, (Conv3d, ConvTranspose3d))


def _converted(module: M, memory_format: Any, kinds: tuple[type, ...]) -> M:
    for layer in module.modules():
        if isinstance(layer, kinds):
            weight: Any = layer.weight
            weight.data = weight.detach().clone(memory_format=memory_format)
    return module


def skip_init(module_cls: type[M], *args: Any, **kwargs: Any) -> M:
    """A module whose parameters have no values yet, made without computing initial ones.

    The class must take ``device``. ``RuntimeError`` if it is no module or does not.

    >>> from tesserack import nn
    >>> skip_init(nn.Linear, 2, 3)
    Linear(in_features=2, out_features=3, bias=True)
    """
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    device = kwargs.pop("device", None)
    place = ts.get_default_device() if device is None else device
    return module_cls(*args, device="meta", **kwargs).to_empty(device=place)
