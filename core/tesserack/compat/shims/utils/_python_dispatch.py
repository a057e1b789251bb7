"""``torch.utils._python_dispatch``: questions about wrappers and modes of dispatch, of which there are none here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["is_in_torch_dispatch_mode", "is_traceable_wrapper_subclass", "is_traceable_wrapper_subclass_type"]


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Always False: no tensor is made of others behind ``__tensor_flatten__``."""
    return False


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Always False."""
    return False


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Always False."""
    return False


def is_in_any_mode_without_ignore_compile_internals() -> bool:
    """Always False."""
    return False


def _get_current_dispatch_mode() -> None:
    """None: there is no such mode."""


def _get_current_dispatch_mode_stack() -> list[Any]:
    return []


@contextlib.contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    yield []
