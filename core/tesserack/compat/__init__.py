"""Programs and packages written for PyTorch, unchanged: ``import torch`` means Tesserack.

>>> import tesserack as ts
>>> with ts.compat.enable():
...     import torch
...     from torch import nn
...     layer = nn.Linear(2, 3)
...     shown = (isinstance(layer.weight, torch.Tensor), str(layer.weight.dtype), type(layer).__module__)
>>> shown
(True, 'torch.float32', 'torch.nn.modules.linear')

With ``scope`` only the packages and modules named see Tesserack; all others go on with the real PyTorch, if there is
one. A module that was imported before keeps what it imported.

What PyTorch has and Tesserack has not can be imported and fails when it is used, with a
:class:`MissingNameError` that says where; ``report()`` lists all of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

from tesserack import _native
from tesserack.compat import _children, _facade, _old_forms, _report
from tesserack.compat._hook import Scoped, Whole
from tesserack.compat._missing import MissingNameError
from tesserack.compat._report import Report

__all__ = ["Enabled", "MissingNameError", "Report", "disable", "enable", "is_enabled", "report"]

# Devices that PyTorch knows by name: they can be named, if not used, wherever a program runs.
NAMEABLE = (
    *(
        "cuda",
        "ipu",
        "xpu",
        "mkldnn",
        "opengl",
        "opencl",
        "ideep",
        "hip",
        "ve",
        "fpga",
        "maia",
        "xla",
        "lazy",
        "vulkan",
    ),
    *("mps", "hpu", "mtia", "privateuseone"),
)


class Enabled:
    """Returned by :func:`enable`; as a context manager it calls :func:`disable` at the end."""

    def __enter__(self) -> Enabled:
        return self

    def __exit__(self, *exc: object) -> None:
        disable()


_active: Whole | Scoped | None = None


def enable(
    scope: str | Iterable[str] | None = None,
    *,
    device: str | None = None,
    as_cuda: bool = False,
    report: bool = False,
    random: str | None = None,
) -> Enabled:
    """Let ``import torch`` mean Tesserack.

    Args:
        scope: packages or modules in which it does, by name (``"__main__"`` too); everywhere if None.
        device: the default device, by name; with ``as_cuda`` the card that ``"cuda"`` means.
        as_cuda: ``"cuda"`` means ``device``, or the default device if none is given, and ``torch.cuda`` answers for it.
            What is made without a device stays where it was: on the cpu, as on a machine with such a card.
        report: note every name that is touched, not only missing ones.
        random: ``"torch"`` draws PyTorch's random numbers of the cpu, bit by bit, in the calling thread.

    Raises:
        ValueError: for another ``random``.
        RuntimeError: if it is enabled already.
        BackendUnavailableError: if the device cannot be used.
    """
    global _active
    if _active is not None:
        raise RuntimeError("compat: it is enabled already; call tesserack.compat.disable() first")
    if random not in (None, "torch"):
        raise ValueError(f"compat: expected random to be None or 'torch', got {random!r}")
    card = None if device is None else _native._resolve_device(device)
    if card is not None and not as_cuda:
        _native.set_default_device(card)
    _report.current = Report(detailed=report)
    hook: Whole | Scoped = Whole() if scope is None else Scoped((scope,) if isinstance(scope, str) else scope)
    _announce_devices(as_cuda, card)
    if isinstance(hook, Whole):
        _facade.set_adopting(True)
        _native._set_shown_package("torch")
    else:
        _native._set_shown_package(_package_of_caller)
    hook.install()
    _old_forms.install()
    scope = hook.packages if isinstance(hook, Scoped) else None
    _children.install({"scope": scope, "device": device, "as_cuda": as_cuda, "random": random}, _begin)
    _active = hook
    if random == "torch":
        _switch_random(True)
    return Enabled()


def _begin(options: dict[str, Any], default: str) -> None:
    """In a process that this one started: what is enabled here."""
    if not is_enabled():
        _native.set_default_device(_native._resolve_device(default))
        enable(**options)


def disable() -> None:
    """``import torch`` means PyTorch again. Modules that imported Tesserack under that name keep it."""
    global _active
    if _active is None:
        return
    _active.remove()
    _old_forms.remove()
    _children.remove()
    _active = None
    if "tesserack.ops.torch_random" in sys.modules:
        _switch_random(False)
    _facade.set_adopting(False)
    _facade.restore_classes()
    _native._set_shown_package("tesserack")
    _native._set_nameable_devices([])
    _native._set_device_alias("", "")


def is_enabled() -> bool:
    """Whether ``import torch`` means Tesserack, somewhere."""
    return _active is not None


def report() -> Report:
    """What was touched and what was missing since :func:`enable`."""
    return _report.current


def _switch_random(on: bool) -> None:
    from tesserack.ops import torch_random

    torch_random.switch(on)


def _announce_devices(as_cuda: bool, card: Any) -> None:
    from tesserack.backends import _accessors

    _native._set_nameable_devices(list(NAMEABLE))
    _accessors.announce_unread("cuda")
    if as_cuda:
        card = card or _native.get_default_device()
        name = _native._real_device_name(card.type)
        if card.index:
            _native._set_current_index(name, card.index)
        _native._set_device_alias("cuda", name if name != "cuda" else "")


def _package_of_caller() -> str:
    """The name to print in: PyTorch's to modules in the scope."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "tesserack":
        frame = frame.f_back
    covered = isinstance(_active, Scoped) and frame is not None and _active.covers(frame.f_globals.get("__name__"))
    return "torch" if covered else "tesserack"


def __getattr__(name: str) -> Any:
    if name == "torch":  # the package as programs see it, without an import
        return _facade.get("torch")
    raise AttributeError(f"module 'tesserack.compat' has no attribute {name!r}")
