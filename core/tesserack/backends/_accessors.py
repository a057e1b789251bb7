"""``x.acme()``, ``module.acme()`` and ``x.is_acme`` for every backend whose name is known, without importing it.

They are hung on the classes when the names are read, so that looking up an attribute stays as quick as without them.
For a device that the distribution declares, as an extra or as expected, but that is not installed, ``x.is_acme`` is
False and ``x.acme`` stays missing, with an ``AttributeError`` that says what to install where there is a package.
"""

from __future__ import annotations

from tesserack import _native
from tesserack._native import Tensor
from tesserack.backends._discovery import claims, when_read

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = [
    "announce",
    "announce_to_module",
    "announce_unread",
    "appeared",
    "declared_absent",
    "missing",
    "offered",
    "resolve",
]

_EXPECTED = "tesserack.expected_devices"
_NO_DEVICES = ("serving",)  # extras that bring a plugin

_names: list[str] = []
_absent: list[str] = []
_unread: list[str] = []
_module_classes: list[type] = []  # nn.Module, once it is there


class Absent:
    """Stands where a known device's accessor would: reading it of an object fails, with advice.

    Of a class it is read without one, as a property is: programs read all that ``dir`` lists.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        raise AttributeError(missing(owner, self.name), name=self.name, obj=instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        owner = type(args[0]) if args else type(self)
        raise AttributeError(missing(owner, self.name), name=self.name)


def missing(owner: type, name: str) -> str:
    """The message for an attribute that an object of a class does not have."""
    advice = ""
    if name in _absent:
        cure = f"try pip install tesserack-{name}" if name in offered() else "no package for it is offered yet"
        advice = f": no backend named {name!r} is installed; {cure}"
    return f"{owner.__name__!r} object has no attribute {name!r}{advice}"


def appeared(name: str) -> bool:
    """Whether an accessor of this name came just now, because the names of the backends had not been read before."""
    if _names or name.startswith("_"):
        return False
    claims()
    return name in _names


def declared_absent() -> list[str]:
    """Devices that the distribution declares and that are not installed."""
    return [name for name in _absent if name not in claims()]


def announce(names: Iterable[str]) -> None:
    """Give the classes accessors for these names, and advice for known ones that are absent."""
    fresh = [name for name in names if name.isidentifier() and name not in _names]
    _names.extend(fresh)
    _absent.extend(name for name in _declared() if name not in _names and name not in _absent)
    _install(Tensor, fresh, _absent, tensor_accessor)
    for name in (*fresh, *_absent):
        _set(Tensor, f"is_{name}", device_flag(name))
    for cls in _module_classes:
        announce_to_module(cls)


def announce_unread(name: str) -> None:
    """Give the classes the accessors of one name, whether or not a backend has it, without reading any names."""
    if name in _unread:
        return
    _unread.append(name)
    _install(Tensor, (name,), (), tensor_accessor)
    _set(Tensor, f"is_{name}", device_flag(name))
    for cls in _module_classes:
        announce_to_module(cls)


def announce_to_module(cls: type) -> None:
    """Give ``nn.Module`` the accessors known so far, and later ones as they come."""
    if cls not in _module_classes:
        _module_classes.append(cls)
    _install(cls, (*_names, *_unread), _absent, module_accessor)


def _install(cls: type, names: Iterable[str], absent: Iterable[str], make: Callable[[str], Any]) -> None:
    for name in names:
        _set(cls, name, make(name))
    for name in absent:
        _set(cls, name, Absent(name))


def _set(cls: type, name: str, member: Any) -> None:
    """Set an attribute of a class unless it means something else already."""
    there = cls.__dict__.get(name)
    if isinstance(there, Absent) or (there is None and not hasattr(cls, name)):
        setattr(cls, name, member)


def offered() -> list[str]:
    """Names of devices that the core offers packages for: extra ``x`` requiring ``tesserack-x``, plugins apart."""
    from importlib import metadata

    try:
        extras = metadata.metadata("tesserack").get_all("Provides-Extra") or []
        required = metadata.requires("tesserack") or []
    except metadata.PackageNotFoundError:
        return []
    wanted = {line.split(";")[0].strip() for line in required}
    return [extra for extra in extras if f"tesserack-{extra}" in wanted and extra not in _NO_DEVICES]


def _declared() -> list[str]:
    """What is offered, and what programs ask about though there is no package: entry points of a group for that."""
    from importlib import metadata

    try:
        points = metadata.distribution("tesserack").entry_points
    except metadata.PackageNotFoundError:
        return []
    return [*offered(), *(point.name for point in points if point.group == _EXPECTED)]


# --- the accessors -------------------------------------------------------------------------------------------------


def resolve(name: str, device: Any = None) -> _native.device:
    """A device of the backend ``name``: its current one, the one of an index, or ``device`` itself if it is one.

    Raises ``ValueError`` for a device of another backend.
    """
    if device is None:
        return _native._resolve_device(name)  # type: ignore[no-any-return]
    if isinstance(device, int) and not isinstance(device, bool):
        return _native._resolve_device(str(_native.device(name, device)))  # type: ignore[no-any-return]
    found: _native.device = _native._resolve_device(str(_native.device(device)))
    if _native._real_device_name(found.type) != _native._real_device_name(name):
        raise ValueError(f"{name}: expected a {name} device or an index, got {str(found)!r}")
    return found


def tensor_accessor(name: str) -> Callable[..., Tensor]:
    """The method ``Tensor.<name>``."""

    def move(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
        options = {} if memory_format is None else {"memory_format": memory_format}
        return self.to(resolve(name, device), non_blocking=non_blocking, **options)

    move.__name__, move.__qualname__ = name, f"Tensor.{name}"
    move.__doc__ = f"This tensor on a {name} device, the current one unless given; itself if it is there already."
    return move


def module_accessor(name: str) -> Callable[..., Any]:
    """The method ``nn.Module.<name>``."""

    def move(self: Any, device: Any = None) -> Any:
        place = resolve(name, device)
        return self._apply(lambda tensor: tensor.to(place))

    move.__name__, move.__qualname__ = name, f"Module.{name}"
    move.__doc__ = f"Move all parameters and buffers to a {name} device, the current one unless given."
    return move


def device_flag(name: str) -> property:
    """The property ``Tensor.is_<name>``."""

    def is_there(self: Tensor) -> bool:
        return self.device.type == name

    return property(is_there, doc=f"Whether it is on a {name} device.")


when_read(announce)
