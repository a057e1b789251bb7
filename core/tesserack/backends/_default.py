"""The device of a program that names none: TESSERACK_DEVICE, the user's order of preference, the declared default."""

from __future__ import annotations

import os
import warnings

from tesserack import _native
from tesserack._native import BackendUnavailableError

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["VARIABLE", "choose", "priority", "set_priority"]

VARIABLE = "TESSERACK_DEVICE"

_priority: tuple[str, ...] = (_native._declared_default(),)


def priority() -> tuple[str, ...]:
    """The order :func:`set_priority` set."""
    return _priority


def set_priority(names: Iterable[str]) -> None:
    """Set the order in which backends are tried for the default device. Nothing is loaded before it is needed."""
    global _priority
    wanted = (names,) if isinstance(names, str) else tuple(names)
    for name in wanted:
        if not isinstance(name, str) or not name or ":" in name:
            raise ValueError(f"priority: expected names of backends, such as 'cpu', got {name!r}")
    if not wanted or len({*wanted}) != len(wanted):
        raise ValueError(f"priority: expected at least one name, each once, got {list(wanted)}")
    _priority = wanted
    _native._forget_chosen_device()


def choose() -> _native.device:
    """The default device now. ``BackendUnavailableError`` if what is asked for cannot be had."""
    named = os.environ.get(VARIABLE)
    if named:
        try:
            return _native._resolve_device(named)  # type: ignore[no-any-return]
        except (RuntimeError, ValueError) as error:
            raise BackendUnavailableError(f"{VARIABLE}={named}: {error}") from error
    return _first_available()


def _first_available() -> _native.device:
    errors: list[Exception] = []
    for name in _priority:
        try:
            device = _native._resolve_device(name)
        except (RuntimeError, ValueError) as error:
            errors.append(error)
            continue
        if errors:
            reasons = "; ".join(map(str, errors))
            warnings.warn(f"priority: using {name!r} as the default device, because {reasons}", stacklevel=2)
        return device  # type: ignore[no-any-return]
    if len(errors) == 1:
        raise errors[0]
    message = f"priority: none of {', '.join(map(repr, _priority))} is available: {'; '.join(map(str, errors))}"
    raise BackendUnavailableError(message) from errors[0]
