"""Finding backends by entry point and loading one when its name is first used."""

from __future__ import annotations

import threading

from tesserack import _native
from tesserack._native import BackendUnavailableError, Tensor

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from typing import Any

GROUP = "tesserack.backends"
DEFAULT = "cpu"

_lock = threading.RLock()
_entry_points: dict[str, list[EntryPoint]] | None = None


def _discover() -> dict[str, list[EntryPoint]]:
    """Entry points by device name, read from the metadata of installed packages without importing any."""
    global _entry_points
    with _lock:
        if _entry_points is None:
            from importlib.metadata import entry_points

            found: dict[str, dict[tuple[str, str], EntryPoint]] = {}
            for point in entry_points(group=GROUP):
                # The same package may lie on the path twice.
                found.setdefault(point.name, {}).setdefault((point.value, _package(point)), point)
            _entry_points = {name: [*points.values()] for name, points in sorted(found.items())}
            _add_device_flags(_entry_points)
    return _entry_points


def _package(point: EntryPoint) -> str:
    distribution = point.dist
    return f"{distribution.name} {distribution.version}" if distribution is not None else point.value


def _add_device_flags(names: Any) -> None:
    """``x.is_acme`` for every backend that is installed."""
    for name in names:
        if not hasattr(Tensor, f"is_{name}"):
            setattr(Tensor, f"is_{name}", _device_flag(name))


def _device_flag(name: str) -> property:
    def is_there(self: Tensor) -> bool:
        return self.device.type == name

    return property(is_there, doc=f"Whether it is on a {name} device.")


def installed() -> dict[str, str]:
    """Names of the installed backends, with the package and version each comes from; loads none."""
    return {name: _package(points[0]) for name, points in _discover().items()}


def list_backends() -> list[str]:
    """Names of all backends that can be named as a device: installed or registered at run time."""
    registered = {backend["name"] for backend in _native._backends()}
    return sorted(registered | _discover().keys())


def load(name: str) -> None:
    """Load a backend now. ``BackendUnavailableError`` saying what failed and what to do."""
    with _lock:
        if _native._is_loaded(name):
            return
        points = _discover().get(name, [])
        if not points:
            raise BackendUnavailableError(_unknown(name))
        if len(points) > 1:
            packages = " and ".join(_package(point) for point in points)
            raise BackendUnavailableError(f"device: the name {name!r} is claimed by {packages}; uninstall one of them")
        _load_point(name, points[0])


def _load_point(name: str, point: EntryPoint) -> None:
    try:
        entry = point.load()
        path = entry() if callable(entry) else entry
        loaded = _native._load_backend(str(path))
    except Exception as error:
        raise BackendUnavailableError(
            f"device: the backend {name!r} from {_package(point)} ({point.value}) failed to load: "
            f"{type(error).__name__}: {error}; try reinstalling {_package(point).split()[0]}"
        ) from error
    if loaded != name:
        raise BackendUnavailableError(
            f"device: {_package(point)} announces a backend {name!r} but its library calls itself {loaded!r}; "
            "report this to the authors of the package"
        )


def _unknown(name: str) -> str:
    have = list_backends()
    if not have:
        return (
            f"device: no backend is installed, so there is no device {name!r}; "
            f"install one, for example: pip install tesserack-{DEFAULT}"
        )
    return (
        f"device: no backend named {name!r} is installed (installed: {', '.join(have)}); "
        f"its package may be called: pip install tesserack-{name}"
    )


def install() -> None:
    """Let the native core load backends by name."""
    _native._set_backend_loader(load)
