"""Which packages bring backends: entry points, read from metadata without importing anything.

``TESSERACK_PLUGINS=off`` hides every package but the declared default's own.
"""

from __future__ import annotations

import os
import sys
import threading

from tesserack import _native

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint

__all__ = [
    "GROUP",
    "Claim",
    "SettingError",
    "claims",
    "entry_points",
    "forget",
    "installed_names",
    "none_in",
    "plugins_enabled",
    "when_read",
]

GROUP = "tesserack.backends"
VARIABLE = "TESSERACK_PLUGINS"
_SWITCH = {"": True, "on": True, "1": True, "off": False, "0": False}

_lock = threading.RLock()
_claims: dict[str, list[Claim]] | None = None
_listeners: list[Callable[[dict[str, list[Claim]]], object]] = []


class SettingError(ValueError):
    """An environment variable of Tesserack's has a value that means nothing."""


class Claim:
    """One package's claim to a name: the entry point and where it comes from."""

    __slots__ = ("name", "package", "point", "value", "version")

    def __init__(self, point: EntryPoint) -> None:
        distribution = point.dist
        self.name = point.name
        self.value = point.value
        self.point = point
        # Nothing is certain about metadata that was written or damaged by hand.
        self.package = str(getattr(distribution, "name", None) or point.value)
        self.version = str(getattr(distribution, "version", None) or "")

    def __str__(self) -> str:
        return f"{self.package} {self.version}".rstrip()


def plugins_enabled() -> bool:
    """What ``TESSERACK_PLUGINS`` says. ``SettingError`` for a value other than on or off."""
    text = os.environ.get(VARIABLE, "").strip().lower()
    if text not in _SWITCH:
        raise SettingError(f"{VARIABLE}: expected 'on' or 'off', got {text!r}")
    return _SWITCH[text]


def entry_points(group: str) -> list[EntryPoint]:
    """The entry points of a group on the path now."""
    from importlib import metadata

    try:
        return [*metadata.entry_points(group=group)]
    except Exception:  # metadata of any package, ours or not, may be damaged: then leave out that one
        return _readable_entry_points(group)


def _readable_entry_points(group: str) -> list[EntryPoint]:
    from importlib import metadata

    found: dict[str, list[EntryPoint]] = {}
    for distribution in metadata.distributions():
        try:
            points = [point for point in distribution.entry_points if point.group == group]
            found.setdefault(str(distribution.metadata["Name"]), points)  # the first on the path counts
        except Exception:
            continue
    return [point for points in found.values() for point in points]


def none_in(group: str) -> bool:
    """Whether surely no package has entry points in a group: asked first where importlib.metadata costs too much."""
    from importlib.machinery import PathFinder

    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return False  # they may find packages anywhere
    return not any(_may_name(folder or ".", group.encode()) for folder in sys.path)


def _may_name(folder: str, group: bytes) -> bool:
    """Whether metadata in a folder may name a group; true of archives, which are not opened here."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return os.path.isfile(folder)  # an archive
    for entry in entries:
        if entry.endswith(".egg"):
            return True
        if entry.endswith((".dist-info", ".egg-info")):
            try:
                with open(os.path.join(folder, entry, "entry_points.txt"), "rb") as file:
                    if group in file.read():
                        return True
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                return True
    return False


def claims() -> dict[str, list[Claim]]:
    """Claims by device name; read once, see :func:`forget`. Tells those who asked by :func:`when_read`."""
    global _claims
    with _lock:
        if _claims is None:
            _claims = _read()
            for listener in _listeners:
                listener(_claims)
        return _claims


def when_read(listener: Callable[[dict[str, list[Claim]]], object]) -> None:
    """Call a function with the claims whenever they are read, and now if they are."""
    with _lock:
        _listeners.append(listener)
        if _claims is not None:
            listener(_claims)


def installed_names() -> list[str]:
    """Every name that is claimed, hidden ones included."""
    return sorted({point.name for point in entry_points(GROUP)})


def _read() -> dict[str, list[Claim]]:
    found: dict[str, dict[tuple[str, str], Claim]] = {}
    for point in entry_points(GROUP):
        claim = Claim(point)
        # The same package may lie on the path twice.
        found.setdefault(claim.name, {}).setdefault((claim.value, str(claim)), claim)
    everything = {name: sorted(by_value.values(), key=str) for name, by_value in sorted(found.items())}
    return everything if plugins_enabled() else _declared_default_only(everything)


def _declared_default_only(everything: dict[str, list[Claim]]) -> dict[str, list[Claim]]:
    name = _native._declared_default()
    claimed = everything.get(name, [])
    own = [claim for claim in claimed if claim.package == f"tesserack-{name}"] or claimed
    return {name: own} if own else {}


def forget() -> None:
    """Read the metadata again at the next use: something may have been installed since."""
    global _claims
    import importlib

    with _lock:
        _claims = None
        importlib.invalidate_caches()
