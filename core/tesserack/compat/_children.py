"""Processes that a program starts with ``spawn`` or ``forkserver`` see PyTorch as it does.

What such a process is to prepare is unpickled before anything of the program is imported there; one entry more, which
is unpickled by a call of ours, lets ``import torch`` mean Tesserack from then on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from tesserack import _native

__all__ = ["install", "remove"]

SPAWN = "multiprocessing.spawn"
_real: list[Any] = []
_options: dict[str, Any] = {}
_begin: list[Callable[[dict[str, Any], str], None]] = []


def install(options: dict[str, Any], begin: Callable[[dict[str, Any], str], None]) -> None:
    """Begin; the options are those of ``enable``, and ``begin(options, default device)`` is called in a new process.

    Importing :mod:`multiprocessing` takes a while: it is waited for.
    """
    _options.update(options)
    _begin[:] = [begin]
    if SPAWN in sys.modules:
        _patch(sys.modules[SPAWN])
    else:
        sys.meta_path.insert(0, _watcher)


def remove() -> None:
    """End."""
    if _watcher in sys.meta_path:
        sys.meta_path.remove(_watcher)
    if _real:
        sys.modules[SPAWN].get_preparation_data = _real.pop()  # type: ignore[attr-defined]
    _options.clear()


class _Watcher:
    """Sees :mod:`multiprocessing.spawn` being imported."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if fullname != SPAWN:
            return None
        import importlib.machinery

        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                _patch(module)

            loader.exec_module = exec_module
        return spec


_watcher: Any = _Watcher()


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
    """Is a call that lets it begin there when it is unpickled."""

    def __reduce__(self) -> Any:
        default = _native.get_default_device()
        name = _native._real_device_name(default.type)  # "cuda" may mean another one here
        return _begin[0], (dict(_options), name if default.index is None else f"{name}:{default.index}")
