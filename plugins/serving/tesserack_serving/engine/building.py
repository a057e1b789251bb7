"""Building a model and giving it its weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import compat, nn
from tesserack.cli import CommandError
from tesserack.cli.target import TorchPrograms, find_target, kind_of

from tesserack_serving.engine.config import ModelConfig
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.text.model import TextModel

__all__ = ["PROGRAMS", "build"]

# Loaders of saved programs by the ending of their file: called with the path and the device, they give what is called.
PROGRAMS: dict[str, Callable[[str, str], Any]] = {}


def build(config: ModelConfig, device: str) -> Any:
    """The model on its device, ready to be called: a module, a function, or a :class:`TextModel`.

    Raises:
        ServingError: it cannot be built, or its weights are not its own. The original error is the cause.
    """
    ending = "." + config.build.rpartition(".")[2]
    if ending in PROGRAMS:
        return PROGRAMS[ending](str(config.path(config.build)), device)
    if not config.torch and compat.is_enabled():
        raise ServingError(
            f"model {config.name!r}: torch = false, but another model here imports torch as Tesserack; serve it alone",
            500,
        )
    programs = TorchPrograms(config.torch)
    try:
        return _build(config, device)
    finally:
        programs.settle()  # what was written for PyTorch may import it in a call, too


def _build(config: ModelConfig, device: str) -> Any:
    place = config.build
    if config.folder and ".py:" in place:
        place = str(config.path(place))
    try:
        target = find_target(place, "serve", f"tesserack_served_{config.name.replace('-', '_')}_{config.version}")
    except CommandError as error:
        raise ServingError(str(error), 500) from error
    try:
        built = _call(target, config)
        text = built if isinstance(built, TextModel) else None
        module = text.module if text else built
        if config.weights and not isinstance(module, nn.Module):
            raise ServingError(f"model {config.name!r}: weights are for a module, got {kind_of(module)}", 500)
        if isinstance(module, nn.Module):
            _load(module, config)
            module.to(device).eval()
    except ServingError:
        raise
    except Exception as error:
        raise ServingError(f"model {config.name!r}: {type(error).__name__}: {error}", 500) from error
    if not callable(module):
        raise ServingError(f"model {config.name!r}: {config.build} gave {type(module).__name__}, nothing to call", 500)
    return built


def _call(target: Any, config: ModelConfig) -> Any:
    if isinstance(target, (nn.Module, TextModel)):
        return target
    if not callable(target):
        raise ServingError(f"model {config.name!r}: {config.build} is a {type(target).__name__}, no function", 500)
    needed = [
        name
        for name, parameter in inspect.signature(target).parameters.items()
        if parameter.default is parameter.empty and parameter.kind in (0, 1, 3) and name not in config.arguments
    ]
    if needed and not isinstance(target, type) and not config.arguments:
        return target  # a function of tensors
    return target(**config.arguments)


def _load(module: nn.Module, config: ModelConfig) -> None:
    if not config.weights:
        return
    path = config.path(config.weights)
    if not path.is_file():
        raise ServingError(f"model {config.name!r}: there is no file {str(path)!r}", 500)
    state = ts.load(str(path), map_location="cpu")
    for key in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    module.load_state_dict(state)
