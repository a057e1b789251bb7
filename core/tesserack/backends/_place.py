"""What a device is beside others: who it is, where it is plugged in, how it reaches its neighbours."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from tesserack import _native

__all__ = ["Identity", "Link", "identity", "link", "links", "recover", "when_recovered"]

#: Called when a device was recovered: whoever keeps tensors of its own lets go of them.
when_recovered: list[Callable[[], None]] = []


class Identity(NamedTuple):
    """What tells a device from all others. What its backend does not know is None."""

    uuid: uuid.UUID | None = None
    bus: str | None = None
    numa_node: int | None = None


class Link(NamedTuple):
    """From one device to another of the same backend: ``bandwidth`` in bytes a second, 0 where it is not known."""

    source: str
    target: str
    direct: bool
    bandwidth: int


def identity(device: Any = None) -> Identity:
    """Who a device is, and where: the same in every process that sees it. None for what its backend does not tell.

    >>> identity("cpu").bus is None
    True
    """
    place = _native._resolve_device(str(device)) if device is not None else _native.get_default_device()
    told = _native._device_identity(place)
    if told is None:
        return Identity()
    known = uuid.UUID(bytes=told["uuid"]) if any(told["uuid"]) else None
    return Identity(known, told["bus"] or None, told["numa_node"] if told["numa_node"] >= 0 else None)


def link(source: Any, target: Any) -> Link | None:
    """How a device reaches another of its backend. None where the backend does not tell, or between others.

    >>> link("cpu", "cpu") is None
    True
    """
    a, b = (_native._resolve_device(str(device)) for device in (source, target))
    told = _native._device_link(a, b.index or 0) if a.type == b.type else None
    here, there = (f"{place.type}:{place.index or 0}" for place in (a, b))
    return None if told is None else Link(here, there, told["direct"], told["bandwidth"])


def links(name: str) -> list[Link]:
    """Those between all devices of a backend that it tells of."""
    places = [f"{name}:{k}" for k in range(_native._device_count(name))]
    told = (link(a, b) for a in places for b in places if a != b)
    return [one for one in told if one is not None]


def recover(device: Any) -> None:
    """Make a device usable again that raised ``DeviceLostError``. Whatever was on it is lost.

    Tensors, streams, events and recordings of before stay objects, and raise ``DeviceLostError`` where they are used:
    load a checkpoint. ``RuntimeError`` where the backend cannot: then the process has to be started anew.

    >>> import tesserack as ts
    >>> try:
    ...     recover("cpu")
    ... except RuntimeError as error:
    ...     print(error)
    recover: backend 'cpu' cannot make a lost device usable again; start the process anew
    """
    _native._recover(_native._resolve_device(str(device)))
    for forget in when_recovered:
        forget()
