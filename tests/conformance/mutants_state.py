"""Backends in Python with one planted fault each: time, order, and what is kept from call to call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from late_backend import Late
from mutants import Queued, planted
from tesserack.backends import Operand
from tesserack_reference import DTYPES, places, read, write

Kernel = Callable[..., None]


# --- what is kept -----------------------------------------------------------------------------------------------------


def by_id_alone(function: Kernel) -> Kernel:
    """Compiles a program for the dtype it first meets, and finds it again by its id."""
    compiled: dict[int, Any] = {}

    def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
        dtype = compiled.setdefault(program.id, compute_dtype)
        if dtype is compute_dtype or DTYPES[dtype].kind != "f":
            function(outputs=outputs, inputs=inputs, program=program, compute_dtype=compute_dtype)
            return
        with np.errstate(all="ignore"):  # what the bits of the operands are in the other dtype
            for out in outputs:
                values = np.zeros(out.shape, DTYPES[out.dtype])
                write(out, values)

    return run


def by_sizes(function: Kernel) -> Kernel:
    """Keeps a plan by the sizes: the dtype is that of the first call."""
    plans: dict[Any, Any] = {}

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: Any) -> None:
        width = plans.setdefault((tuple(x.shape), opcode), DTYPES[x.dtype].itemsize)
        function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
        if width != DTYPES[x.dtype].itemsize:
            write(out, np.zeros(out.shape))

    return run


def by_op(function: Kernel) -> Kernel:
    """Keeps the first direction that was asked for."""
    plans: dict[Any, Any] = {}

    def run(*args: Any, **kwargs: Any) -> None:
        if "params" in kwargs:
            kwargs["params"] = (plans.setdefault(len(args), kwargs["params"][0]),)
        else:
            *given, descending = args
            args = (*given, plans.setdefault(len(given), descending))
        function(*args, **kwargs)

    return run


def words_of_32_bits(function: Kernel) -> Kernel:
    """Counts words of the random stream in 32 bits."""

    def run(out: Operand, key: int, offset: int) -> None:
        function(out, key, offset & 0xFFFFFFFF)

    return run


def blocks_of_32_bits(function: Kernel) -> Kernel:
    """Has only the counter's lowest word: blocks begin anew after 2^32."""

    def run(out: Operand, key: int, offset: int) -> None:
        function(out, key, offset & ((1 << 34) - 1))

    return run


def in_any_order(function: Kernel) -> Kernel:
    """Adds with atomics, in the order of arrival, whatever was asked for."""
    chance = np.random.default_rng()

    def run(out: Operand, index: Operand, source: Any, dim: int, *, opcode: str) -> None:
        if opcode != "add" or index.numel < 1000 or DTYPES[out.dtype].kind != "f" or len(out.shape) != 1:
            function(out, index, source, dim, opcode=opcode)
            return
        base, values = read(out).copy(), read(source).astype(read(out).dtype)
        (at,) = places(index, dim, base.shape[dim])
        order = chance.permutation(len(values))
        np.add.at(base, at[order], values[order])
        write(out, base)

    return run


byid = planted("byid", "pointwise", by_id_alone)
bysizes = planted("bysizes", "reduce", by_sizes)
byop = planted("byop", "sort", by_op)
counter32 = planted("counter32", "random_bits", words_of_32_bits)
blocks32 = planted("blocks32", "random_bits", blocks_of_32_bits)
anyorder = planted("anyorder", "scatter", in_any_order)


# --- time -------------------------------------------------------------------------------------------------------------


class Timed(Queued):
    """Its events tell a part, or a multiple, of the time."""

    def __init__(self, name: str, factor: float) -> None:
        super().__init__(name, False)
        self.factor = factor

    def event_elapsed(self, device: int, begin: dict[str, Any], end: dict[str, Any]) -> float:
        return self.factor * super().event_elapsed(device, begin, end)


class Hasty(Queued):
    """Says that an event has happened once it was asked for."""

    def event_query(self, device: int, event: dict[str, Any]) -> bool:
        return True


class OneWait(Late):
    """Waits for the stream that came first, whichever is meant."""

    def synchronize(self, device: int, stream: Any) -> None:
        if stream is None or (self.streams and stream is self.streams[0]):
            super().synchronize(device, stream)

    def copy_to_host(self, device: int, dst: memoryview, src: Any, src_offset: int, stream: Any) -> None:
        np.frombuffer(dst, np.uint8)[:] = src[src_offset : src_offset + dst.nbytes]


class Hurried(Late):
    """Copies from the host at once, past what the stream still has to do."""

    def copy_from_host(self, device: int, dst: Any, dst_offset: int, src: memoryview, stream: Any) -> None:
        dst[dst_offset : dst_offset + src.nbytes] = np.frombuffer(src, np.uint8)


class Eager(Late):
    """Copies to pinned memory at once, past what the stream still has to do."""

    def copy_to_pinned(self, device: int, address: int, src: Any, src_offset: int, nbytes: int, stream: Any) -> None:
        self._at(address, nbytes)[...] = src[src_offset : src_offset + nbytes]


class Delayed(Late):
    """Copies from pinned memory when nobody orders it: on a stream of its own."""

    def copy_from_pinned(self, device: int, dst: Any, dst_offset: int, address: int, nbytes: int, stream: Any) -> None:
        src = self._at(address, nbytes)

        def copy() -> None:
            time.sleep(0.002)
            dst[dst_offset : dst_offset + nbytes] = src

        self.side = getattr(self, "side", None) or self.stream_create(device, 0)
        self.side.put(copy)


class Snapshot(Late):
    """Registers a copy of the memory, as of that moment."""

    def host_register(self, address: int, nbytes: int) -> Any:
        answer = super().host_register(address, nbytes)
        if answer is None:
            self.pinned[address] = self.pinned[address].copy()
        return answer


class FromItsBeginning(Late):
    """Copies from where registered memory begins, wherever in it is asked for."""

    def copy_from_pinned(self, device: int, dst: Any, dst_offset: int, address: int, nbytes: int, stream: Any) -> None:
        start = max(a for a in self.pinned if a <= address)
        super().copy_from_pinned(device, dst, dst_offset, start, nbytes, stream)


class Wiping(Late):
    """Poisons memory that it lets go of, whoever's it is."""

    def host_unregister(self, address: int, nbytes: int) -> None:
        self._at(address, nbytes)[...] = 0xFF
        super().host_unregister(address, nbytes)


class Elsewhere(Late):
    """Replays on the default stream, whichever is named."""

    def capture_replay(self, device: int, recording: Any, stream: Any) -> None:
        super().capture_replay(device, recording, None)


class Peers(Late):
    """Copies between its devices from the beginning of a block."""

    def copy_peer(self, *args: Any) -> Any:
        device, dst, to, name, other, src, start, nbytes, stream = args
        return super().copy_peer(device, dst, to, name, other, src, 0 if start else start, nbytes, stream)


slowclock = Timed("slowclock", 0.8)
fastclock = Timed("fastclock", 1.2)
microseconds = Timed("microseconds", 1e3)
seconds = Timed("seconds", 1e-3)
hasty = Hasty("hasty", False)
onewait = OneWait("onewait", own=True, holds=True)
hurried = Hurried("hurried", own=True, holds=True)
eager = Eager("eager", own=True, holds=True)
delayed = Delayed("delayed", own=True, holds=True)
elsewhere = Elsewhere("elsewhere", own=True, holds=True)
snapshot = Snapshot("snapshot", own=True, holds=True)
frombegin = FromItsBeginning("frombegin", own=True, holds=True)
wiping = Wiping("wiping", own=True, holds=True)
peers = Peers("peers", own=True, devices=2, holds=True)
latehealthy = Late("latehealthy", own=True, devices=2, holds=True)
