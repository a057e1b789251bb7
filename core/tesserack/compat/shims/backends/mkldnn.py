"""``torch.backends.mkldnn``: oneDNN, which the cpu backend uses where it was built with it."""

from __future__ import annotations

import contextlib

from tesserack.compat.shims.backends._flags import flags_of

__all__ = ["flags", "is_acl_available", "is_available", "set_flags"]

enabled = True
deterministic = False
allow_tf32 = True
fp32_precision = "none"


def is_available() -> bool:
    """Always False: no tensor has oneDNN's layout."""
    return False


def is_acl_available() -> bool:
    """Always False."""
    return False


def set_flags(
    _enabled: bool | None = None, _deterministic: bool | None = None, _allow_tf32: bool | None = None
) -> tuple[bool, bool, bool]:
    """Set the switches that are given; returns how all were."""
    before = (enabled, deterministic, allow_tf32)
    given = {"enabled": _enabled, "deterministic": _deterministic, "allow_tf32": _allow_tf32}
    globals().update({name: value for name, value in given.items() if value is not None})
    return before


def flags(
    enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True
) -> contextlib.AbstractContextManager[None]:
    """A context with other switches."""
    return flags_of(__name__, enabled=enabled, deterministic=deterministic, allow_tf32=allow_tf32)
