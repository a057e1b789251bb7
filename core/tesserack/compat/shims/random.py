"""``torch.random``: its generator is an object, where :func:`tesserack.random.default_generator` is a function."""

from __future__ import annotations

from typing import Any

import tesserack as ts


def __getattr__(name: str) -> Any:
    if name == "default_generator":
        return ts.random.default_generator()
    raise AttributeError(f"module 'torch.random' has no attribute {name!r}")
