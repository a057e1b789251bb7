"""Optimizers that take their step while backward runs, so that no gradient outlives it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tesserack import nn
from tesserack.nn.parallel._buckets import step_in_backward

__all__: list[str] = []


def _apply_optimizer_in_backward(
    optimizer_class: type[Any], params: Iterable[Any], optimizer_kwargs: dict[str, Any], register_hook: bool = True
) -> None:
    """Give each parameter an optimizer of its own, which takes a step once the parameter's gradient is complete and
    drops it; with ``register_hook=False`` the optimizers are only made, as ``_in_backward_optimizers`` of each.

    >>> import tesserack as ts
    >>> layer = ts.nn.Linear(2, 1, bias=False)
    >>> before = layer.weight.detach().clone()
    >>> _apply_optimizer_in_backward(ts.optim.SGD, layer.parameters(), {"lr": 0.5})
    >>> layer(ts.ones(1, 2)).sum().backward()
    >>> (before - layer.weight).detach(), layer.weight.grad
    (tensor([[0.5000, 0.5000]]), None)
    """
    for parameter in params:
        optimizers = parameter.__dict__.setdefault("_in_backward_optimizers", [])
        optimizers.append(optimizer_class([parameter], **optimizer_kwargs))
        parameter.__dict__.setdefault("_optimizer_classes", []).append(optimizer_class)
        parameter.__dict__.setdefault("_optimizer_kwargs", []).append(optimizer_kwargs)
        if register_hook and len(optimizers) == 1:
            parameter.register_post_accumulate_grad_hook(_step_at_once)


def _step_at_once(parameter: Any) -> None:
    if not parameter.__dict__.get("_steps_later"):
        step_in_backward(parameter)


def _get_in_backward_optimizers(module: nn.Module) -> list[Any]:
    """The optimizers of a module's parameters."""
    return [o for p in module.parameters() for o in getattr(p, "_in_backward_optimizers", [])]
