"""Processes that a program starts with ``spawn`` or ``forkserver`` see PyTorch as it does.

What such a process is to prepare is unpickled before anything of the program is imported there; one entry more, which
is unpickled by a call of ours, lets ``import torch`` mean Tesserack from then on.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tesserack import _native
from tesserack.utils.importing import when_imported

__all__ = ["install", "remove"]

SPAWN = "multiprocessing.spawn"
_real: list[Any] = []
_forget: list[Any] = []  # watches for the module
_options: dict[str, Any] = {}


def install(options: dict[str, Any]) -> None:
    """Begin; the options are those of ``enable``. Importing :mod:`multiprocessing` takes a while: it is waited for."""
    _options.update(options)
    _forget.append(when_imported(SPAWN, _patch))


def remove() -> None:
    """End."""
    while _forget:
        _forget.pop()()
    if _real:
        sys.modules[SPAWN].get_preparation_data = _real.pop()  # type: ignore[attr-defined]
    _options.clear()


def _patch(module: ModuleType) -> None:
    found: Any = module
    real = found.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        data: dict[str, Any] = real(name)
        if _options:
            data["tesserack"] = _Beginning()
        return data

    _real.append(real)
    found.get_preparation_data = get_preparation_data


class _Beginning:
    """Is a call of :func:`begin` when it is unpickled."""

    def __reduce__(self) -> Any:
        default = _native.get_default_device()
        name = _native._real_device_name(default.type)  # "cuda" may mean another one here
        return begin, (dict(_options), name if default.index is None else f"{name}:{default.index}")


def begin(options: dict[str, Any], default: str) -> None:
    """In the new process: what its parent enabled."""
    from tesserack import compat

    if not compat.is_enabled():
        _native.set_default_device(_native._resolve_device(default))
        compat.enable(**options)
