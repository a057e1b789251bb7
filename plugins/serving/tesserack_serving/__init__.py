"""Serves models over the Open Inference Protocol, on LitServe.

``tesserack serve model.py:build --weights model.safetensors --device cpu``, or from a program :func:`serve`.
What builds a model of text returns a :class:`TextModel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tesserack_serving.engine.config import ModelConfig
    from tesserack_serving.protocol.errors import ServingError
    from tesserack_serving.server.options import ServerOptions
    from tesserack_serving.serving import serve
    from tesserack_serving.text.model import Sampling, TextModel

__all__ = ["ModelConfig", "Sampling", "ServerOptions", "ServingError", "TextModel", "serve"]

# Looked up when used: a model's file that needs TextModel alone brings no server.
_HOMES = {
    "ModelConfig": "engine.config",
    "Sampling": "text.model",
    "ServerOptions": "server.options",
    "ServingError": "protocol.errors",
    "TextModel": "text.model",
    "serve": "serving",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
