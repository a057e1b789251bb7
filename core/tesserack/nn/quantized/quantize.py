"""``quantize_dynamic``: models whose linear layers have weights of 8 bits, or of float16."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import tesserack as ts
from tesserack import nn
from tesserack.nn.quantized import qconfig as configs
from tesserack.nn.quantized import tensor as q
from tesserack.nn.quantized.dynamic import Linear

__all__ = ["quantize_dynamic"]

_BY_DTYPE = {q.qint8: configs.default_dynamic_qconfig, ts.float16: configs.float16_dynamic_qconfig}


def quantize_dynamic(
    model: nn.Module, qconfig_spec: Any = None, dtype: Any = q.qint8, mapping: Any = None, inplace: bool = False
) -> nn.Module:
    """The model with its ``nn.Linear`` replaced: weights are quantized now, what they multiply in each call.

    ``qconfig_spec`` has types or names of modules, all linear ones if it is None, or says the ``QConfig`` of each.
    ``ValueError`` for other dtypes, ``RuntimeError`` where it names a layer that is not linear.
    """
    if qconfig_spec is None or isinstance(qconfig_spec, (set, list, tuple)):
        if dtype not in _BY_DTYPE:
            raise ValueError(f"quantize_dynamic: expected the dtype qint8 or float16, got {dtype}")
        qconfig_spec = dict.fromkeys(qconfig_spec or {nn.Linear}, _BY_DTYPE[dtype])
    wanted = {nn.Linear: Linear, **(mapping or {})}
    model = model if inplace else copy.deepcopy(model)
    for parent, name, path, config in list(_chosen(model, qconfig_spec)):
        layer = getattr(parent, name)
        if type(layer) in wanted:
            layer.qconfig = config
            setattr(parent, name, wanted[type(layer)].from_float(layer))
        elif path in qconfig_spec or type(layer) in qconfig_spec:
            raise RuntimeError(
                f"quantize_dynamic: expected layers of nn.Linear, got {path!r}, {type(layer).__name__}; name those to "
                "quantize, as {nn.Linear}"
            )
    return model.eval() if not model.training else model


def _chosen(module: nn.Module, spec: Any, path: str = "", config: Any = None) -> Iterator[tuple[Any, str, str, Any]]:
    """Layers that a spec names, by path or type, or that lie in a module which it names: with what it says of them."""
    config = spec.get(path, config) if path else config
    for name, child in module.named_children():
        below = f"{path}.{name}" if path else name
        asked = spec.get(below, spec.get(type(child), config))
        if asked is not None and not list(child.children()):
            yield module, name, below, asked
        yield from _chosen(child, spec, below, asked)
