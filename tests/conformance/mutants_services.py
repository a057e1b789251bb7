"""Cards in Python that offer what drivers do beside computing, and such cards with one planted fault each."""

from __future__ import annotations

import itertools
import mmap
import os
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import tesserack as ts
from mutants import Mutant
from tesserack.backends import Activity
from tesserack_reference import Array


class Served(Mutant):
    """Times its kernels, shares its memory, knows who it is, and forgets all when it is recovered; two devices."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.profiled: dict[int, list[Activity]] = {}  # of the devices that are
        self.ranges: list[tuple[str, int]] = []
        self.maps: dict[int, tuple[int, int, mmap.mmap | None]] = {}  # device, file, mapping: by address
        self.age = [0, 0]  # times that a device was recovered
        self.ages: dict[int, int] = {}  # of blocks, by address
        for op, (function, when, fields, *rest) in self._kernels.items():
            self._kernels[op] = (self.timed(op, function, fields), when, (*fields, *self.more(fields)), *rest)

    # --- times -------------------------------------------------------------------------------------------------------

    @staticmethod
    def more(fields: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in ("number", "device") if name not in fields)

    def timed(self, op: str, function: Callable[..., Any], fields: tuple[str, ...]) -> Callable[..., Any]:
        def run(*args: Any, number: int, device: int, **kwargs: Any) -> Any:
            begin = time.perf_counter_ns()
            result = function(*args, **kwargs)
            self.tell(device, Activity("kernel", op, begin, time.perf_counter_ns(), call=number))
            return result

        return run

    def tell(self, device: int, activity: Activity) -> None:
        if device in self.profiled:
            self.profiled[device].append(activity)

    def profile_start(self, device: int) -> None:
        self.profiled[device] = []

    def profile_collect(self, device: int) -> list[Activity]:
        told, self.profiled[device] = self.profiled[device], []
        return told

    def profile_stop(self, device: int) -> None:
        del self.profiled[device]

    def profile_push(self, device: int, name: str, stream: Any) -> None:
        self.ranges.append((name, time.perf_counter_ns()))

    def profile_pop(self, device: int, stream: Any) -> None:
        name, begin = self.ranges.pop()
        self.tell(device, Activity("range", name, begin, time.perf_counter_ns()))

    def copy_from_host(self, device: int, dst: Array, dst_offset: int, src: memoryview, stream: Any) -> None:
        begin = time.perf_counter_ns()
        super().copy_from_host(device, self.known(device, dst), dst_offset, src, stream)
        self.tell(device, Activity("copy", "from host", begin, time.perf_counter_ns(), value=src.nbytes))

    # --- memory, which other processes open --------------------------------------------------------------------------

    def known(self, device: int, handle: Array) -> Array:
        if self.ages.get(handle.ctypes.data, 0) != self.age[device]:
            raise ts.DeviceLostError(f"{self.name}: memory of before the device was recovered was used")
        return handle

    def mapped(self, device: int, file: int, own: bool) -> Array:
        mapping = mmap.mmap(file, os.fstat(file).st_size)
        handle = np.frombuffer(mapping, np.uint8)
        self.maps[handle.ctypes.data] = (device, file if own else -1, mapping)
        self.ages[handle.ctypes.data] = self.age[device]
        return handle

    def alloc(self, device: int, nbytes: int, stream: Any) -> Array:
        file = os.memfd_create(self.name, os.MFD_CLOEXEC)
        os.ftruncate(file, max(nbytes, 1))
        return self.mapped(device, file, own=True)

    def free(self, device: int, handle: Array, nbytes: int, stream: Any) -> None:
        self.known(device, handle)
        _, file, _ = self.maps.pop(handle.ctypes.data)
        if file >= 0:
            os.close(file)

    def export_memory(self, device: int, handle: Array) -> Any:
        file = self.maps[handle.ctypes.data][1]
        return NotImplemented if file < 0 else f"/proc/{os.getpid()}/fd/{file}".encode()

    def import_memory(self, device: int, name: bytes) -> Array:
        file = os.open(name, os.O_RDWR | os.O_CLOEXEC)
        try:
            return self.mapped(device, file, own=False)
        finally:
            os.close(file)

    def release_imported(self, device: int, handle: Array) -> None:
        del self.maps[handle.ctypes.data]

    # --- who it is ---------------------------------------------------------------------------------------------------

    def probe(self) -> tuple[int, str]:
        return 2, ""

    def identify(self, device: int) -> dict[str, Any]:
        known = uuid.uuid5(uuid.NAMESPACE_DNS, f"{device}.{self.vendor}")
        return {"uuid": known.bytes, "bus": f"0000:0{device}:00.0", "numa_node": device}

    def link(self, device: int, peer: int) -> dict[str, Any]:
        return {"direct": False, "bandwidth": 25 * 10**9}

    def recover(self, device: int) -> None:
        self.age[device] += 1


class Twice(Served):
    """Tells again what it told."""

    def profile_collect(self, device: int) -> list[Activity]:
        return list(self.profiled[device])


class Shifted(Served):
    """Changes what it tells of kernels."""

    def __init__(self, name: str, change: Callable[[Activity], Activity]) -> None:
        self.change = change
        super().__init__(name)

    def profile_collect(self, device: int) -> list[Activity]:
        told = super().profile_collect(device)
        return [self.change(a) if a.kind == "kernel" else a for a in told]


class Always(Served):
    """Notes what it does whether anybody asked or not, and starts with all of it."""

    def __init__(self, name: str) -> None:
        self.all: list[Activity] = []
        super().__init__(name)

    def tell(self, device: int, activity: Activity) -> None:
        self.all.append(activity)

    def profile_collect(self, device: int) -> list[Activity]:
        told, self.all = self.all, []
        return told if device == 0 else []


class LongNames(Served):
    """Puts each range where it was pushed, and ends it there."""

    def profile_pop(self, device: int, stream: Any) -> None:
        name, begin = self.ranges.pop()
        self.tell(device, Activity("range", name, begin, begin + 1))


class Short(Served):
    """Tells of copies in elements of four bytes."""

    def tell(self, device: int, activity: Activity) -> None:
        super().tell(device, activity._replace(value=activity.value // 4))


class Anybody(Served):
    """Another uuid for every process."""

    def __init__(self, name: str, same: bool) -> None:
        self.same, self.drawn = same, itertools.count()
        super().__init__(name)

    def identify(self, device: int) -> dict[str, Any]:
        if self.same:
            return {"uuid": b"the only device!"}
        return {"uuid": os.getpid().to_bytes(8, "little") + device.to_bytes(8, "little")}


class Boaster(Served):
    """Direct links, without a slot for copies between devices."""

    def link(self, device: int, peer: int) -> dict[str, Any]:
        return {"direct": True}


class Copying(Served):
    """Gives another process a copy."""

    def import_memory(self, device: int, name: bytes) -> Array:
        with open(name, "rb") as file:
            data = file.read()
        copy = os.memfd_create("copy", os.MFD_CLOEXEC)
        os.write(copy, data)
        return self.mapped(device, copy, own=True)


class Cutting(Served):
    """Ends the memory of its owner when another process lets go."""

    def release_imported(self, device: int, handle: Array) -> None:
        handle[...] = 0
        super().release_imported(device, handle)


class Believing(Served):
    """Takes any name for that of some memory."""

    def import_memory(self, device: int, name: bytes) -> Array:
        try:
            return super().import_memory(device, name)
        except (OSError, ValueError):
            return self.alloc(device, 4096, None)


class Unrecovered(Served):
    """Says that it recovered, and refuses all memory from then on."""

    def alloc(self, device: int, nbytes: int, stream: Any) -> Array:
        if self.age[device]:
            raise ts.DeviceLostError(f"{self.name}:{device} is still lost")
        return super().alloc(device, nbytes, stream)


served = Served("served")
twicetold = Twice("twicetold")
microtimes = Shifted("microtimes", lambda a: a._replace(begin=a.begin // 1000, end=a.end // 1000))
backwards = Shifted("backwards", lambda a: a._replace(begin=a.end, end=a.begin))
nonumbers = Shifted("nonumbers", lambda a: a._replace(call=0))
strangers = Shifted("strangers", lambda a: a._replace(call=a.call + 1_000_000 if a.name == "reduce" else a.call))
always = Always("always")
shortranges = LongNames("shortranges")
elements = Short("elements")
anybody = Anybody("anybody", same=False)
oneforall = Anybody("oneforall", same=True)
boaster = Boaster("boaster")
copying = Copying("copying")
cutting = Cutting("cutting")
believing = Believing("believing")
unrecovered = Unrecovered("unrecovered")
