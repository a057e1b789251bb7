"""``torch._dynamo.backends.registry``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack.jit._compile.backends import list_backends, lookup_backend, register_backend

__all__ = ["list_backends", "lookup_backend", "register_backend", "register_debug_backend",
           "register_experimental_backend"]  # fmt: skip


def register_debug_backend(compiler_fn: Callable[..., Any], name: str | None = None) -> Any:
    """A compiler that lists leave out, for looking at graphs."""
    return register_backend(compiler_fn, name, ("debug",))


def register_experimental_backend(compiler_fn: Callable[..., Any], name: str | None = None) -> Any:
    """A compiler that lists leave out, being new."""
    return register_backend(compiler_fn, name, ("experimental",))
