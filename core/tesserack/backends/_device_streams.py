"""Streams and events of ``tesserack.acme``: those of the package, on this backend's current device unless given."""

from __future__ import annotations

import copyreg
import functools
from collections.abc import Callable
from typing import Any

import tesserack
from tesserack import _native
from tesserack.backends._accessors import resolve

__all__ = ["NAMES", "bind"]

NAMES = ("Stream", "Event", "stream", "current_stream", "default_stream", "set_stream")


@functools.cache
def bind(name: str, backend: str) -> Any:
    """What ``tesserack.<backend>.<name>`` is; classes are pickled as a call of this."""
    found: Any = getattr(tesserack, name)
    if name == "Stream":
        return _bound_class(found, backend, lambda device=None, priority=0: (device, priority))
    if name == "Event":
        return _bound_class(found, backend, _event_arguments)
    if name in ("current_stream", "default_stream"):
        return lambda device=None: found(resolve(backend, device))
    return found


def _event_arguments(
    enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, device: Any = None
) -> tuple[Any, ...]:
    """PyTorch's arguments, which name no device; waiting blocks in any case, and events stay in their process."""
    if interprocess:
        raise ValueError("Event: interprocess=True is not supported; synchronize before handing memory on")
    return device, enable_timing


class _Bound(type):
    """Makes objects of another class on a backend's devices, and takes them for its instances."""

    _made: tuple[type, str, Callable[..., tuple[Any, ...]]]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        kind, backend, arguments = cls._made
        device, *rest = arguments(*args, **kwargs)
        return kind(resolve(backend, device), *rest)

    def __instancecheck__(cls, instance: object) -> bool:
        kind, backend, _ = cls._made
        real = _native._real_device_name  # a name may mean another one
        return isinstance(instance, kind) and real(instance.device.type) == real(backend)  # type: ignore[attr-defined]


def _bound_class(kind: type, backend: str, arguments: Callable[..., tuple[Any, ...]]) -> type:
    # What an object of the class can do may be asked of the class, and called with one.
    ways = {name: way for name, way in vars(kind).items() if not name.startswith("_")}
    own = {"__doc__": kind.__doc__, "__module__": f"tesserack.{backend}", "_made": (kind, backend, arguments)}
    return _Bound(kind.__name__, (), {**ways, **own})


copyreg.pickle(_Bound, lambda cls: (bind, (cls.__name__, cls._made[1])))
