"""Layers that follow each other as one: batch normalisation folded into what is before it, relu put beside it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tesserack import nn
from tesserack.nn.intrinsic import fused
from tesserack.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = ["fuse_known_modules", "fuse_modules", "fuse_modules_qat"]

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_FUSED: dict[tuple[type, ...], type[Any]] = {
    getattr(fused, name)._parts: getattr(fused, name) for name in fused.__all__
}
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def _one(layers: list[Any], is_qat: bool) -> Any:
    """One module for several."""
    kinds = tuple(map(type, layers))
    if kinds not in _FUSED:
        raise AssertionError(f"did not find fuser method for: {kinds} ")
    if len({layer.training for layer in layers}) > 1:
        raise AssertionError("layers to fuse must all be in either train or eval mode")
    folds = kinds[1] in _BATCH_NORMS and kinds[0] not in _BATCH_NORMS
    if not folds or (is_qat and layers[0].training):
        return _FUSED[kinds](*layers)
    if layers[0].training:
        raise AssertionError("Fusion only for eval!")
    fold: Any = fuse_conv_bn_eval if kinds[0] in _CONVOLUTIONS else fuse_linear_bn_eval
    folded = fold(layers[0], layers[1])
    return _FUSED[kinds[0], kinds[2]](folded, layers[2]) if len(layers) > 2 else folded


def fuse_known_modules(mod_list: list[Any], is_qat: bool, additional_fuser_method_mapping: Any = None) -> list[Any]:
    """As many modules as are given: the first for all of them, the others ``Identity``."""
    whole = _one(mod_list, is_qat)
    # Hooks go where what they watch is computed now.
    for key, hook in mod_list[0]._forward_pre_hooks.items():
        whole.register_forward_pre_hook(hook)
        del mod_list[0]._forward_pre_hooks[key]
    for key, hook in mod_list[-1]._forward_hooks.items():
        whole.register_forward_hook(hook)
        del mod_list[-1]._forward_hooks[key]
    rest = [nn.Identity().train(mod_list[0].training) for _ in mod_list[1:]]
    return [whole, *rest]


def _fuse(model: nn.Module, names: list[str], fuser: Callable[..., list[Any]], is_qat: bool, custom: Any) -> None:
    layers = [model.get_submodule(name) for name in names]
    for name, layer in zip(names, fuser(layers, is_qat, custom), strict=True):
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, layer)


def _fuse_all(
    model: nn.Module,
    modules_to_fuse: Any,
    is_qat: bool,
    inplace: bool,
    fuser_func: Callable[..., list[Any]],
    fuse_custom_config_dict: Any,
) -> Any:
    model = model if inplace else copy.deepcopy(model)
    lists = [modules_to_fuse] if all(isinstance(each, str) for each in modules_to_fuse) else modules_to_fuse
    custom = (fuse_custom_config_dict or {}).get("additional_fuser_method_mapping", {})
    for names in lists:
        _fuse(model, list(names), fuser_func, is_qat, custom)
    return model


def fuse_modules(
    model: nn.Module,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Callable[..., list[Any]] = fuse_known_modules,
    fuse_custom_config_dict: Any = None,
) -> Any:
    """The model, in evaluation mode, with each list of layers, by name, as one module in place of the first.

    Convolutions and linear layers with batch normalisation become one layer; relu is put beside it, as it is beside
    batch normalisation alone. ``AssertionError`` for other lists, and in training mode.

    >>> from tesserack import nn
    >>> fuse_modules(nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1)).eval(), ["0", "1"])
    Sequential(
      (0): Linear(in_features=1, out_features=1, bias=True)
      (1): Identity()
    )
    """
    return _fuse_all(model, modules_to_fuse, False, inplace, fuser_func, fuse_custom_config_dict)


def fuse_modules_qat(
    model: nn.Module,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Callable[..., list[Any]] = fuse_known_modules,
    fuse_custom_config_dict: Any = None,
) -> Any:
    """The same, where in training mode the layers are put together as they are."""
    return _fuse_all(model, modules_to_fuse, True, inplace, fuser_func, fuse_custom_config_dict)
