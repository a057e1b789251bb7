"""``torch.backends.nnpack``: NNPACK is not used."""

from __future__ import annotations

import contextlib

__all__ = ["flags", "is_available", "set_flags"]


def is_available() -> bool:
    """Always False."""
    return False


def set_flags(_enabled: bool) -> tuple[bool]:
    """Nothing: the library is not used."""
    return (False,)


def flags(enabled: bool = False) -> contextlib.AbstractContextManager[None]:
    """A context that changes nothing."""
    return contextlib.nullcontext()
