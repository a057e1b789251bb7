"""Modules under transforms of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn.modules.batchnorm import _BatchNorm
from tesserack.nn.modules.module import Module
from tesserack.nn.utils import stateless

__all__ = [
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "use_functional_rule",
]


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """``module(*args, **kwargs)`` with the named tensors, of one dict or several, in the place of its own.

    ``ValueError`` if two dicts share a name; see ``nn.utils.stateless.functional_call`` for the rest.

    >>> import tesserack as ts
    >>> layer = ts.nn.Linear(1, 1)
    >>> ts.func.functional_call(layer, ({"weight": ts.ones(1, 1)}, {"bias": ts.ones(1)}), ts.ones(1)).item()
    2.0
    """
    given = parameter_and_buffer_dicts
    merged: Mapping[str, Tensor]
    if isinstance(given, Mapping):
        merged = given
    elif isinstance(given, Sequence) and all(isinstance(one, Mapping) for one in given):
        names = [name for one in given for name in one]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"functional_call: {twice} appeared in multiple dictionaries; behavior of functional call "
                             "is ambiguous")  # fmt: skip
        merged = {name: tensor for one in given for name, tensor in one.items()}
    else:
        raise ValueError("functional_call: expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, "
                         f"got {type(given).__name__}")  # fmt: skip
    return stateless.functional_call(module, merged, args, kwargs, tie_weights=tie_weights, strict=strict)


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """The tensor itself: transforms here give functions plain tensors, which hold their values."""
    return tensor


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters and buffers of models of one kind, stacked by name, for ``vmap`` over ``functional_call``.

    ``RuntimeError`` for no models, several classes, or models some of which train, or some of whose parameters of one
    name do. Stacked parameters are leaves.

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
    for name in named[0]:
        if len({one[name].requires_grad for one in named}) > 1:
            raise RuntimeError(f"stack_module_state: Expected {name} to require gradients in all models, or in none.")
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


_functional_rule: list[Callable[..., Any]] = []  # one, as soon as graphs can be made


def use_functional_rule(rule: Callable[..., Any]) -> None:
    """Say what :func:`functionalize` does where a graph is made: ``rule(func, remove, args, kwargs)``; NotImplemented
    where none is."""
    _functional_rule[:] = [rule]


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """``func`` without writes, for graphs that are made of it: what it wrote to is a new value from there on.

    What it writes to its arguments is copied to them at the end. With ``remove="mutations_and_views"`` views are copied
    before they are used. ``RuntimeError`` where it writes to a tensor that it was not given. Where no graph is made, or
    a size is changed in place, ``func`` runs as it is: its results and writes are the same.

    >>> import tesserack as ts
    >>> from tesserack.fx.experimental.proxy_tensor import make_fx
    >>> graph = make_fx(ts.func.functionalize(lambda x: x.sin().add_(1)))(ts.ones(2))
    >>> [str(node.target) for node in graph.graph.nodes]
    ['x_1', 'aten.sin.default', 'aten.add.Tensor', 'output']
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"functionalize: expected 'mutations' or 'mutations_and_views' for remove, got {remove!r}")

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found = _functional_rule[0](func, remove, args, kwargs) if _functional_rule else NotImplemented
        return func(*args, **kwargs) if found is NotImplemented else found

    return wrapper
