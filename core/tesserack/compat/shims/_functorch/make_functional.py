"""``torch._functorch.make_functional``: modules as functions of their parameters, as ``functorch`` had them first."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import tesserack as ts
from tesserack import Tensor, nn
from tesserack.func import functional_call

__all__ = [
    "FunctionalModule",
    "FunctionalModuleWithBuffers",
    "combine_state_for_ensemble",
    "make_functional",
    "make_functional_with_buffers",
]


class FunctionalModuleWithBuffers(nn.Module):
    """A module as a function of its parameters and buffers, before the other arguments."""

    def __init__(self, stateless_model: nn.Module, param_names: tuple[str, ...], buffer_names: tuple[str, ...]) -> None:
        super().__init__()
        self.stateless_model, self.param_names, self.buffer_names = stateless_model, param_names, buffer_names

    def forward(self, params: Iterable[Tensor], buffers: Iterable[Tensor], *args: Any, **kwargs: Any) -> Any:
        """What the module gives with these in the places of its own."""
        given = dict(zip(self.param_names, params, strict=True)), dict(zip(self.buffer_names, buffers, strict=True))
        return functional_call(self.stateless_model, given, args, kwargs)


class FunctionalModule(nn.Module):
    """A module without buffers as a function of its parameters, before the other arguments."""

    def __init__(self, stateless_model: nn.Module, param_names: tuple[str, ...]) -> None:
        super().__init__()
        self.stateless_model, self.param_names = stateless_model, param_names

    def forward(self, params: Iterable[Tensor], *args: Any, **kwargs: Any) -> Any:
        """What the module gives with these in the places of its own."""
        return functional_call(self.stateless_model, dict(zip(self.param_names, params, strict=True)), args, kwargs)


def _state(model: nn.Module, disable_autograd_tracking: bool) -> tuple[nn.Module, dict[str, Any], dict[str, Any]]:
    """A copy of the module, its parameters and its buffers."""
    made = copy.deepcopy(model)
    params: dict[str, Any] = dict(made.named_parameters())
    if disable_autograd_tracking:
        params = {name: value.detach() for name, value in params.items()}
    return made, params, dict(made.named_buffers())


def make_functional(
    model: nn.Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModule, tuple[Tensor, ...]]:
    """The module as a function, and its parameters. ``RuntimeError`` for one with buffers."""
    if next(model.buffers(), None) is not None:
        raise RuntimeError(
            "make_functional: expected a module without buffers; use make_functional_with_buffers for this one"
        )
    made, params, _ = _state(model, disable_autograd_tracking)
    return FunctionalModule(made, (*params,)), (*params.values(),)


def make_functional_with_buffers(
    model: nn.Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The module as a function, its parameters and its buffers."""
    made, params, buffers = _state(model, disable_autograd_tracking)
    return FunctionalModuleWithBuffers(made, (*params,), (*buffers,)), (*params.values(),), (*buffers.values(),)


def _stacked(states: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(ts.stack(same).detach() for same in zip(*states, strict=True))


def combine_state_for_ensemble(
    models: Iterable[nn.Module],
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """One module as a function, and the parameters and buffers of all, stacked. ``RuntimeError`` unless all are of one
    class and mode."""
    models = [*models]
    if not models:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise RuntimeError("combine_state_for_ensemble: Expected all models to have the same training/eval mode.")
    if len({type(model) for model in models}) > 1:
        raise RuntimeError("combine_state_for_ensemble: Expected all models to be of the same class.")
    made = [make_functional_with_buffers(model) for model in models]
    return made[0][0], _stacked([params for _, params, _ in made]), _stacked([buffers for _, _, buffers in made])
