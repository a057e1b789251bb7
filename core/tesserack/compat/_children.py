"""Processes started with ``spawn`` or ``forkserver``, and workers of joblib, Ray and pytest-xdist, see PyTorch as the
program does.

What such a process is to prepare is unpickled before anything of the program is imported there; one entry more, which
is unpickled by a call of ours, lets ``import torch`` mean Tesserack from then on.
"""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from tesserack import _native
from tesserack.utils.importing import when_imported

__all__ = ["install", "remove"]

SPAWNS = ("multiprocessing.spawn", "joblib.externals.loky.backend.spawn", "loky.backend.spawn")
_real: list[tuple[ModuleType, str, Any]] = []  # what was replaced, by where
_forget: list[Any] = []  # watches for the modules
_options: dict[str, Any] = {}
_begin: list[Callable[[dict[str, Any], str], None]] = []


def install(options: dict[str, Any], begin: Callable[[dict[str, Any], str], None]) -> None:
    """Begin; the options are those of ``enable``, and ``begin(options, default device)`` is called in a new process.

    Importing :mod:`multiprocessing` takes a while: it is waited for.
    """
    _options.update(options)
    _begin[:] = [begin]
    _forget.extend(when_imported(name, _patch) for name in SPAWNS)
    _forget.append(when_imported("ray", _patch_ray))
    _forget.append(when_imported("execnet.gateway_io", _patch_execnet))


def remove() -> None:
    """End."""
    while _forget:
        _forget.pop()()
    while _real:
        setattr(*_real.pop())
    _options.clear()


def _patch(module: ModuleType) -> None:
    found: Any = module
    real = found.get_preparation_data

    def get_preparation_data(*args: Any, **kwargs: Any) -> dict[str, Any]:
        data: dict[str, Any] = real(*args, **kwargs)
        if _options:
            data["tesserack"] = _Beginning()
        return data

    _real.append((module, "get_preparation_data", real))
    found.get_preparation_data = get_preparation_data


def _patch_ray(module: ModuleType) -> None:
    found: Any = module
    real = found.init

    @functools.wraps(real)
    def init(*args: Any, **kwargs: Any) -> Any:
        environment = kwargs.get("runtime_env")
        environment = {} if environment is None else environment
        if _options and isinstance(environment, Mapping) and "worker_process_setup_hook" not in environment:
            begin = functools.update_wrapper(functools.partial(_begin[0], *_arguments()), _begin[0])
            kwargs["runtime_env"] = {**copy.deepcopy(environment), "worker_process_setup_hook": begin}
        return real(*args, **kwargs)

    _real.append((module, "init", real))
    found.init = init


def _patch_execnet(module: ModuleType) -> None:
    """The processes of execnet, in which pytest-xdist runs tests, are given a line of Python's to begin with."""
    found: Any = module
    real = found.popen_args

    @functools.wraps(real)
    def popen_args(*args: Any, **kwargs: Any) -> list[str]:
        *words, line = real(*args, **kwargs)
        if _options:
            line = f"import pickle; pickle.loads(bytes.fromhex({pickle.dumps(_Beginning()).hex()!r})); {line}"
        return [*words, line]

    _real.append((module, "popen_args", real))
    found.popen_args = popen_args


def _arguments() -> tuple[dict[str, Any], str]:
    """What lets it begin in another process as here."""
    default = _native.get_default_device()
    name = _native._real_device_name(default.type)  # "cuda" may mean another one here
    return dict(_options), name if default.index is None else f"{name}:{default.index}"


class _Beginning:
    """Is a call that lets it begin there when it is unpickled."""

    def __reduce__(self) -> Any:
        return _begin[0], _arguments()
