"""What is asked of runtime slots, called one by one: each check gives what is wrong in one line, or None.

Run as a program (``python -m tesserack.testing.conformance.direct.rehearsal NAME ANSWER``) it goes through
:data:`CHECKS` and writes down what each found: a table of one's own belongs in a process of its own.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
from collections.abc import Callable

from tesserack.testing.conformance.direct.slots import Slots, open_slots

__all__ = ["CHECKS"]

_SIZES = (1, 3, 16, 63, 257, 4096, 70_001)
_LONG = ((1 << 20) + 3, (4 << 20) + 5)  # what drivers move otherwise
_OFFSETS = (0, 1, 7, 64)
_ODD = (0, 3, 5, 13, 333)
_LARGE = 8 << 20
_ROUNDS = 60


def _bytes(count: int, seed: int) -> bytearray:
    return bytearray(random.Random(seed).randbytes(count))


def _difference(slot: str, found: bytes, wanted: bytes | bytearray, what: str) -> str | None:
    if found == bytes(wanted):
        return None
    at = next(i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
    return f"{slot}: {what}: byte {at} of {len(wanted)} should be {wanted[at]}, is {found[at]}"


def copies_from_host(slots: Slots) -> str | None:
    """Bytes land where the offset says, and nowhere else."""
    for size in (*_SIZES, *_LONG):
        for offset in (0, 13) if size in _LONG else (*_OFFSETS, 333):
            total = size + 400
            handle, image = slots.alloc(total), _bytes(total, size)
            slots.write(handle, 0, bytearray(image))
            data = _bytes(size, size + 1)
            slots.write(handle, offset, data)
            image[offset : offset + size] = data
            problem = _difference("copy_from_host", slots.read(handle, 0, total), image, f"{size} bytes to {offset}")
            slots.free(handle, total)
            if problem:
                return problem
    return _from_odd_addresses(slots)


def _from_odd_addresses(slots: Slots) -> str | None:
    """The host's bytes need not begin at a multiple of anything."""
    handle, image = slots.alloc(400), _bytes(400, 9)
    for begin in (1, 2, 3, 7):
        slots.write(handle, 0, memoryview(image)[begin : begin + 300])
        found, wanted = slots.read(handle, 0, 300), image[begin : begin + 300]
        problem = _difference("copy_from_host", found, wanted, f"300 bytes of the host, {begin} past a whole address")
        if problem:
            return problem
    slots.free(handle, 400)
    return None


def copies_to_host(slots: Slots) -> str | None:
    """From any offset."""
    total = max(_LONG) + 400
    handle, image = slots.alloc(total), _bytes(total, 5)
    slots.write(handle, 0, bytearray(image))
    for size in (*_SIZES, *_LONG):
        for offset in (0, 13) if size in _LONG else (*_OFFSETS, *_ODD[1:]):
            found, wanted = slots.read(handle, offset, size), image[offset : offset + size]
            problem = _difference("copy_to_host", found, wanted, f"{size} bytes from {offset}")
            if problem:
                return problem
    slots.free(handle, total)
    return None


def copies_within(slots: Slots) -> str | None:
    """Between two blocks, and between two places of one."""
    for size in (*_SIZES, *_LONG):
        total = 2 * size + 700
        one, two = slots.alloc(total), slots.alloc(total)
        first, second = _bytes(total, size), _bytes(total, size + 2)
        slots.write(one, 0, bytearray(first))
        slots.write(two, 0, bytearray(second))
        slots.copy(two, 13, one, 5, size)
        second[13 : 13 + size] = first[5 : 5 + size]
        slots.copy(one, size + 100, one, 3, size)
        first[size + 100 : 2 * size + 100] = first[3 : 3 + size]
        for to, start in ((333, 64), (64, 333), (6, 1)):
            slots.copy(two, to, one, start, min(size, 64))
            second[to : to + min(size, 64)] = first[start : start + min(size, 64)]
        problem = _difference("copy_within", slots.read(two, 0, total), second, f"{size} bytes, between blocks")
        problem = problem or _difference("copy_within", slots.read(one, 0, total), first, f"{size} bytes, in one block")
        slots.free(one, total)
        slots.free(two, total)
        if problem:
            return problem
    return None


def source_may_go(slots: Slots) -> str | None:
    """Once copy_from_host has returned, the source belongs to its owner again. Comes first: a card that reads it later
    fails wherever something is copied."""
    for size in (*_SIZES, 1 << 20):
        handle, data = slots.alloc(size), _bytes(size, 9)
        wanted = bytes(data)
        slots.write(handle, 0, data)
        data[:] = b"\xa5" * size
        slots.wait()
        found = slots.read(handle, 0, size)
        slots.free(handle, size)
        if found != wanted and all(f == 0xA5 for f, w in zip(found, wanted, strict=True) if f != w):
            return (
                f"copy_from_host: {size} bytes changed after it returned: it reads the source later, when that may be "
                "gone; copy it first, or wait"
            )
    return None


def freed_in_order(slots: Slots) -> str | None:
    """What the stream still does with a block when it is freed is done with what was in it: also where that alone is
    under way, and what wrote the block is done."""
    size = 1 << 20
    for turn in range(6):
        data = _bytes(size, turn)
        first, second = bytearray(data), bytearray(size)  # held: when sources may go is another check
        handle, kept = slots.alloc(size), slots.alloc(size)
        slots.write(handle, 0, first)
        if turn % 2 == 0:
            slots.wait()
        for _ in range(4):  # the more there is, the later the last
            slots.copy(kept, 0, handle, 0, size)
        slots.free(handle, size)
        other = slots.alloc(size)  # which may be where the first was
        slots.write(other, 0, second)
        slots.wait()
        found = slots.read(kept, 0, size)
        for block in (kept, other):
            slots.free(block, size)
        if found != bytes(data):
            return (
                f"free: a copy of {size} bytes that was given to the stream before it reads what came after: memory is "
                "freed when the stream comes there, as work that uses it may be under way"
            )
    return None


def captures_keep_copies(slots: Slots) -> str | None:
    """A copy between begin and end is done by replays, each time, and not before."""
    for size in (7, 4096, 1 << 20):
        source, target = slots.alloc(size), slots.alloc(size)
        slots.write(source, 0, _bytes(size, 2))
        slots.write(target, 0, bytearray(size))
        slots.wait()
        replay = slots.record_copy(target, 0, source, 0, size)
        if replay is None:
            return None
        told = f"capture: copy_within of {size} bytes between begin and end"
        if any(slots.read(target, 0, size)):
            return f"{told} is done at once, beside the recording: expected it to be written down"
        for turn in range(2):
            before, data = slots.read(target, 0, size), _bytes(size, turn + 3)
            slots.write(source, 0, data)
            slots.wait()
            replay()
            found = slots.read(target, 0, size)
            if found == before:
                return f"{told} is not done by replay {turn + 1}: it was left out of the recording"
            if found != bytes(data):
                return _difference("capture", found, data, f"copy_within of {size} bytes, replayed")
    return None


def memory_goes_back(slots: Slots) -> str | None:
    """What is freed can be had again."""
    data = _bytes(_LARGE, 1)

    def turn(count: int) -> None:
        for _ in range(count):
            handle = slots.alloc(_LARGE)
            slots.write(handle, 0, data)
            slots.wait()
            slots.free(handle, _LARGE)

    turn(4)
    wanted = _ROUNDS * _LARGE
    told = f"free: {_ROUNDS} blocks of {_LARGE >> 20} MiB allocated and freed"
    grown = lost = 0
    for _ in range(3):  # others on the machine take memory too, but not the same amount each time
        before, had = _resident(), slots.free_memory()
        turn(_ROUNDS)
        grown, lost = _resident() - before, had - slots.free_memory()
        if grown < wanted * 0.9 and (not had or lost < wanted * 0.9):
            return None
    size = f"left the process {grown >> 20} MiB larger" if grown > lost / 2 else f"took {lost >> 20} MiB of the device"
    return f"{told} {size}: the memory leaks"


def _resident() -> int:
    """Bytes of memory of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096
    except OSError:
        return 0


def host_pointer_agrees(slots: Slots) -> str | None:
    """What the host sees at the pointer is what copies see."""
    handle, image = slots.alloc(4096), _bytes(4096, 3)
    slots.write(handle, 0, bytearray(image))
    slots.wait()
    address = slots.host_pointer(handle)
    found = ctypes.string_at(address, 4096) if address else bytes(image)
    slots.free(handle, 4096)
    return _difference("host_pointer", found, image, "4096 bytes written by copy_from_host")


def blocks_are_aligned(slots: Slots) -> str | None:
    """They begin at multiples of 16 bytes, or of what the device says that its kernels need."""
    needed = max(16, slots.alignment())
    for size in (1, 5, 100, 4096, 70_001):
        handles = [slots.alloc(size) for _ in range(5)]
        addresses = [slots.host_pointer(handle) for handle in handles]
        for handle in handles:
            slots.free(handle, size)
        for address in addresses:
            if address and address % needed:
                return f"alloc: a block of {size} bytes begins at {address:#x}, expected a multiple of {needed} bytes"
    return None


def too_much_is_refused(slots: Slots) -> str | None:
    """A request that nothing can meet is out of memory, and not the end."""
    try:
        slots.alloc(1 << 62)
    except MemoryError:
        return copies_to_host(slots)
    except Exception as error:
        return f"alloc: of 2**62 bytes gave {type(error).__name__}: {error}; expected it to be out of memory"
    return "alloc: claims to have 2**62 bytes"


CHECKS: dict[str, Callable[[Slots], str | None]] = {
    check.__name__: check
    for check in (
        source_may_go,
        copies_from_host,
        copies_to_host,
        copies_within,
        freed_in_order,
        host_pointer_agrees,
        blocks_are_aligned,
        too_much_is_refused,
        captures_keep_copies,
        memory_goes_back,
    )
}


def main(name: str, answer: str) -> None:
    """Run all checks, writing down each before the next, which may end the process."""
    slots = open_slots(name)
    with open(answer, "w", encoding="utf-8") as file:
        for title, check in CHECKS.items():
            print(json.dumps({"begin": title}), file=file, flush=True)
            try:
                problem = check(slots)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            print(json.dumps({"check": title, "problem": problem}), file=file, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
