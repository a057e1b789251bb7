"""Backends: the plugins that bring devices. Found by entry point, loaded when a device of theirs is first named.

>>> import tesserack as ts
>>> ts.backends.get("cpu").status
'ready'
>>> ts.backends.why_unavailable("nosuch") is None
False

``priority`` is the order in which backends are tried for the default device, ``("cpu",)`` unless the user sets it:
``tesserack.backends.priority = ["acme", "cpu"]``. Installing a package never changes it. ``TESSERACK_DEVICE`` and
``tesserack.set_default_device`` come before it.
"""

from __future__ import annotations

import sys

from tesserack import _native
from tesserack.backends._loader import failures, install, installed, load, reload
from tesserack.backends._loader import list_backends as list

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from tesserack.backends._activity import Activity
    from tesserack.backends._info import BackendInfo, DeviceProperties
    from tesserack.backends._kernel_cache import KernelCache
    from tesserack.backends._place import Identity, Link, identity, link, recover
    from tesserack.backends._plan import WORKSPACE, Block, Buffer, Launch, LaunchPlan, Patch
    from tesserack.backends._python import Backend, Operand, Program

    priority: tuple[str, ...]

__all__ = [
    "WORKSPACE",
    "Activity",
    "Backend",
    "BackendInfo",
    "Block",
    "Buffer",
    "DeviceProperties",
    "Identity",
    "KernelCache",
    "Launch",
    "LaunchPlan",
    "Link",
    "Operand",
    "Patch",
    "Program",
    "capabilities",
    "failures",
    "fallbacks",
    "get",
    "get_fallback",
    "has_module",
    "identity",
    "install",
    "installed",
    "link",
    "list",
    "load",
    "properties",
    "recover",
    "register_host_memory",
    "reload",
    "reset_fallbacks",
    "set_checked",
    "set_fallback",
    "why_unavailable",
]

_MODES = ("allow", "warn", "error")


def get(name: str, load: bool = True) -> BackendInfo:
    """Everything about one backend: package, version, state, devices. Loads it unless ``load=False``.

    Raises ``BackendUnavailableError`` only for a name that nothing claims: one that fails to load is described.

    >>> get("cpu").package
    'tesserack-cpu'
    """
    from tesserack.backends import _info

    return _info.get(name, load)


def capabilities(name: str) -> dict[str, Any]:
    """What a backend can do, as plain data: dtypes, kernels, missing ones, streams, properties of each device.

    Raises ``BackendUnavailableError`` if the backend has no device.

    >>> capabilities("cpu")["missing"]
    []
    """
    from tesserack.backends import _info

    return _info.capabilities(name)


def has_module(name: str) -> bool:
    """Whether there is a ``tesserack.<name>`` with the functions of a backend: see ``tesserack.get_device_module``.

    True for installed backends and for those the distribution offers as an extra, so that a program may ask
    ``tesserack.<name>.is_available()``.
    """
    from tesserack.backends import _device_module

    return _device_module.has_module(name)


def why_unavailable(name: str) -> str | None:
    """None if a device of this name works; otherwise one line saying what is missing and what to do. Never raises."""
    try:
        _native._resolve_device(name)
    except Exception as error:
        return " ".join(str(error).split())
    return None


def register_host_memory(tensor: Any, device: _native.device | str) -> Any:
    """The same memory of the host, from which a device copies by itself until the result is gone: what others
    allocated (shared between processes, mapped from a file, of NumPy) without the copy that ``pin_memory()`` makes.
    The result keeps the tensor. ``RuntimeError`` for a tensor that is not dense, contiguous and on the cpu, and
    where the device registers no memory, or not this; ``TypeError`` for what is no tensor.

    >>> import tesserack as ts
    >>> try:
    ...     register_host_memory(ts.ones(2), "cpu")
    ... except RuntimeError as error:
    ...     print(error)
    register_host_memory: backend 'cpu' registers no memory; try pin_memory(), which copies
    """
    if not isinstance(tensor, _native.Tensor):
        raise TypeError(f"register_host_memory: expected a tensor, got {type(tensor).__name__}; try from_numpy()")
    return _native._register_host_memory(tensor.detach(), _native._resolve_device(str(device)).type)


def properties(device: _native.device | str | None = None) -> dict[str, Any]:
    """What a device says about itself: name, memory, dtypes, limits.

    >>> properties("cpu")["max_ndim"]
    0
    """
    from tesserack.backends import _info

    return vars(_info.device_properties(device))


def set_fallback(mode: str) -> None:
    """What happens when a backend lacks a kernel and the cpu must help.

    ``"allow"``, ``"warn"`` (once per operator, the default) or ``"error"``. ``ValueError`` for other modes.
    """
    if mode not in _MODES:
        raise ValueError(f"set_fallback: expected one of {', '.join(map(repr, _MODES))}, got {mode!r}")
    _native._set_fallback(_MODES.index(mode))


def get_fallback() -> str:
    """The mode set by :func:`set_fallback`."""
    return _MODES[_native._fallback_mode()]


def fallbacks() -> dict[str, int]:
    """How often each operator ran on the cpu backend instead of the tensor's own."""
    return dict(_native._fallbacks())


def reset_fallbacks() -> None:
    """Count fallbacks from zero again."""
    _native._reset_fallbacks()


def set_checked(mode: bool) -> bool:
    """In checked mode every kernel is waited for, so that an error of the device is raised by the call that made it.

    Without, an asynchronous device tells an error at the next wait. What lies behind the scratch memory that a kernel
    asked for is compared, too: a kernel that writes past it raises ``RuntimeError``. Slow: for debugging.
    ``TESSERACK_CHECKED=1`` in the environment switches it on from the start. Returns the mode before.

    >>> set_checked(False)
    False
    """
    return bool(_native._set_checked(bool(mode)))


def __getattr__(name: str) -> Any:
    if name in ("BackendInfo", "DeviceProperties"):
        from tesserack.backends import _info

        return getattr(_info, name)
    if name in ("Backend", "Operand", "Program"):
        from tesserack.backends import _python

        return getattr(_python, name)
    if name in ("WORKSPACE", "Block", "Buffer", "Launch", "LaunchPlan", "Patch"):
        from tesserack.backends import _plan

        return getattr(_plan, name)
    if name in ("Identity", "Link", "identity", "link", "recover"):
        from tesserack.backends import _place

        return getattr(_place, name)
    if name == "Activity":
        from tesserack.backends._activity import Activity

        return Activity
    if name == "KernelCache":
        from tesserack.backends._kernel_cache import KernelCache

        return KernelCache
    raise AttributeError(f"module 'tesserack.backends' has no attribute {name!r}")


class _Module(type(sys)):  # type: ignore[misc]
    """This module, with ``priority`` checked when it is set."""

    @property
    def priority(self) -> tuple[str, ...]:
        """The order in which backends are tried for the default device."""
        from tesserack.backends import _default

        return _default.priority()

    @priority.setter
    def priority(self, names: Iterable[str]) -> None:
        from tesserack.backends import _default

        _default.set_priority(names)


sys.modules[__name__].__class__ = _Module
