"""Modules under transforms of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn.modules.batchnorm import _BatchNorm
from tesserack.nn.modules.module import Module

__all__ = ["functionalize", "replace_all_batch_norm_modules_", "stack_module_state"]


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters and buffers of models of one kind, stacked by name, for ``vmap`` over ``functional_call``.

    ``RuntimeError`` for no models, several classes, or models some of which train. Stacked parameters are leaves.

    >>> from tesserack import func, nn
    >>> parameters, _ = func.stack_module_state([nn.Linear(2, 3) for _ in range(4)])
    >>> parameters["weight"].shape
    tesserack.Size([4, 3, 2])
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len({type(model) for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    named = [dict(model.named_parameters()) for model in models]
    parameters = {
        name: ts.stack([one[name] for one in named]).detach().requires_grad_(p.requires_grad)
        for name, p in named[0].items()
    }
    held = [dict(model.named_buffers()) for model in models]
    buffers = {name: ts.stack([one[name] for one in held]) for name in held[0]}
    return parameters, buffers


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Have every BatchNorm below ``root`` use the statistics of its batch and keep none; returns ``root``."""
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None
    return root


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """``func`` itself: nothing here needs mutations removed from it."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"functionalize: expected 'mutations' or 'mutations_and_views' for remove, got {remove!r}")
    return func
