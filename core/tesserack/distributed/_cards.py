"""Collectives that cards do among themselves, by the communicator of their backend, on a stream of their own.

The ranks of a group agree on it when they first give tensors of a device. Where one of them cannot, or two have one and
the same device, all go through the host as before.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import warnings
from typing import Any

import tesserack as ts
from tesserack import _native
from tesserack.distributed._card_engine import CardEngine
from tesserack.distributed._card_table import Table
from tesserack.distributed._engine import Call, Engine
from tesserack.distributed._errors import DistBackendError

__all__ = ["carrier"]

_ROOM = 4096  # bytes of what a rank tells the others


def carrier(made: Any, device: Any) -> Engine:
    """What carries a group's collectives of tensors of a card. ``ValueError`` for another one than before."""
    known: Engine | None = made.cards.get(device.type)
    if known is None:
        known = made.cards[device.type] = _agreed(made, device) or made.engine
    if known.device is not None and known.device != device:
        raise ValueError(
            f"expected tensors of {known.device}, with which this rank joined the group's collectives, got one of "
            f"{device}; make the rank's own device the current one first (set_device), or name it"
        )
    return known


def _agreed(made: Any, device: Any) -> CardEngine | None:
    """A communicator of cards that all ranks of the group have, None where some rank has none. Each rank is here."""
    if os.environ.get("TESSERACK_COMM") or not _native._communicator_table(device.type)[0]:
        return None
    call, mine = made.call(), _Opening(device)
    told = _exchanged(made, {"card": device.type, "at": mine.place, "why": mine.why, "id": mine.identity.hex()}, call)
    why = _why_not(told)
    if not why:
        mine.open(bytes.fromhex(told[0]["id"]), made.rank(), made.size(), call.timeout)
        told = _exchanged(made, {"why": mine.why}, call)
        why = next((f"rank {k}: {each['why']}" for k, each in enumerate(told) if each["why"]), "")
    if why:
        warnings.warn(f"{device.type}: collectives go through the host, since {why}", stacklevel=4)
        return None
    return CardEngine(made, device, mine.table, mine.context, mine.handle)


def _why_not(told: list[dict[str, str]]) -> str:
    places: dict[str, int] = {}
    for rank, each in enumerate(told):
        if each["why"]:
            return f"rank {rank}: {each['why']}"
        if each["card"] != told[0]["card"]:
            return f"rank 0 gives tensors of {told[0]['card']}, and rank {rank} of {each['card']}"
        if each["at"] and places.setdefault(each["at"], rank) != rank:
            return f"ranks {places[each['at']]} and {rank} have the same device"
    return ""


def _exchanged(made: Any, mine: dict[str, str], call: Call) -> list[dict[str, str]]:
    """What each rank says, by the communicator of the host, after what it was given before."""
    mine["why"] = mine["why"][: _ROOM // 8]
    said = json.dumps(mine).encode().ljust(_ROOM)
    source = ts.frombuffer(bytearray(said), dtype=ts.uint8)
    heard = [ts.empty(_ROOM, dtype=ts.uint8, device="cpu") for _ in range(made.size())]
    made.in_order(lambda: made.engine.all_gather(source, heard, call))
    return [json.loads(bytes(each.tolist())) for each in heard]


class _Opening:
    """This rank's part of a new communicator; ``why`` it has none."""

    def __init__(self, device: Any) -> None:
        self.device, self.handle, self.why = device, ctypes.c_void_p(), ""
        address, self.context = _native._communicator_table(device.type)
        self.table = Table.from_address(address)
        identity = _native._device_identity(device)
        self.place = identity["uuid"].hex() if identity is not None else ""
        self.identity = os.urandom(16)
        if self.table.has("unique_id"):  # asked on each rank: the library may be missing on one
            space, told = ctypes.create_string_buffer(1024), ctypes.c_size_t()
            if self._went(self.table.unique_id(self.context, space, len(space), ctypes.byref(told))):
                self.identity = space.raw[: told.value]

    def _went(self, status: int) -> bool:
        if status:
            self.why = _native._take_last_error() or f"its communicator gave status {status}"
        return not status

    def open(self, identity: bytes, rank: int, size: int, timeout: float) -> None:
        """With the other ranks, each of which comes here; ``DistBackendError`` when the time is over."""

        def job() -> None:
            place = ctypes.byref(self.handle)
            index = self.device.index or 0
            self._went(self.table.open(self.context, index, identity, len(identity), rank, size, place))

        thread = threading.Thread(target=job, name="communicator of a card", daemon=True)
        thread.start()
        thread.join(timeout)
        if thread.is_alive():
            raise DistBackendError(
                f"{self.device}: not all of {size} ranks opened their communicator within {timeout:g} s (told by rank "
                f"{rank})"
            )
