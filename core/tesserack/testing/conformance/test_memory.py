"""Memory: blocks that never overlap, alignment, statistics, and what is said when there is no more."""

from __future__ import annotations

import gc
import re
from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.testing.conformance.card import Card
from tesserack.testing.conformance.exactly import expect, real


def fill_of(number: int, count: int) -> np.ndarray[Any, Any]:
    """Contents that tell one block, and one place in it, from another."""
    return ((np.arange(count, dtype=np.int64) * 7919 + number * 104_729) % 2_147_483_629).astype(np.int32)


def check(blocks: dict[int, ts.Tensor], action: str) -> None:
    """Every live block still holds what was written to it."""
    for number, block in blocks.items():
        found, expected = block.cpu().numpy(), fill_of(number, block.numel())
        if np.array_equal(found, expected):
            continue
        at = int(np.argmax(found != expected))
        writer = owner(found[at:], blocks)
        culprit = f"; what lies there was written to block {writer}" if writer is not None else ""
        pytest.fail(
            f"{action}: block {number} ({block.numel() * 4} bytes) lost its contents from byte {at * 4} on: the "
            f"allocator handed out overlapping blocks{culprit}",
            pytrace=False,
        )


def owner(found: Any, blocks: dict[int, ts.Tensor]) -> int | None:
    """The block whose contents begin somewhere in what was found."""
    for number, block in blocks.items():
        head = fill_of(number, min(4, block.numel()))
        if len(head) and any(np.array_equal(found[i : i + len(head)], head) for i in range(min(len(found), 4096))):
            return number
    return None


SIZES = {
    "small": (1, 3, 16, 17, 100, 255),
    "mixed": (1, 16, 900, 5_000, 40_000, 70_000),
    "large": (33_000, 50_000, 262_144, 300_001),
}


@pytest.mark.parametrize("kind", SIZES)
def test_blocks_never_overlap(kind: str, card: Card) -> None:
    """Blocks come and go at random; each keeps what was written to it until it goes."""
    random = np.random.default_rng(3)
    live: dict[int, ts.Tensor] = {}
    limit = 12 if kind == "large" else 60
    for number in range(60 if kind == "large" else 400):
        if live and (len(live) >= limit or random.random() < 0.4):
            live.pop(int(random.choice([*live])))
        count = int(random.choice(SIZES[kind]))
        block = ts.empty(count, dtype=ts.int32, device=card.device)
        block.copy_(ts.from_numpy(fill_of(number, count)))
        live[number] = block
        if number % 25 == 0:
            check(live, f"after {number} allocations")
    check(live, "at the end")


def test_blocks_in_use_stay(card: Card) -> None:
    """Giving back what is kept for reuse leaves alone what is in use."""
    live: dict[int, ts.Tensor] = {}
    for number in range(24):
        count = int(SIZES["mixed"][number % 6])
        live[number] = ts.empty(count, dtype=ts.int32, device=card.device)
        live[number].copy_(ts.from_numpy(fill_of(number, count)))
        if number % 3 == 2:
            live.pop(number - 1)
        if number % 6 == 5:
            ts.empty_cache(card.device)
            check(live, f"after empty_cache, {number + 1} allocations")
    check(live, "at the end")


def test_results_never_overlap(card: Card) -> None:
    """The same for memory that kernels write to, while earlier results live on."""
    live: list[ts.Tensor] = []
    for number in range(200):
        made = ts.arange(float(number), float(number + 50), device=card.device) * 2
        live.append(made)
        if number % 3 == 0 and len(live) > 20:
            live.pop(7)
    for block in live:
        found = block.cpu().numpy()
        assert np.array_equal(found, found[0] + np.arange(50) * 2.0), "a result was overwritten by a later one"


def test_reuse_waits_for_readers(card: Card) -> None:
    """Memory that is freed while queued work reads it is not overwritten too early."""
    for round in range(20):
        source = ts.full((200_000,), float(round), device=card.device)
        result = source
        for _ in range(5):
            result = result + 1
        del source
        ts.full((200_000,), -1.0, device=card.device)
        found = result.cpu()
        assert found.min().item() == found.max().item() == round + 5


@pytest.mark.parametrize("count", (1, 5, 64, 1000, 100_000))
def test_alignment(count: int, card: Card) -> None:
    """Blocks begin where vector instructions want them, at multiples of 16 bytes at least, where the host can tell."""
    if not card.capabilities["host_memory"]:
        pytest.skip("the host does not see the device's addresses")
    blocks = [ts.empty(count, dtype=ts.uint8, device=card.device) for _ in range(20)]
    declared = max(16, card.properties["alignment"])
    assert [hex(b.data_ptr()) for b in blocks if b.data_ptr() % declared] == []


def test_kernels_take_any_offset(card: Card) -> None:
    """Tensors that begin anywhere in a block, aligned to their element only."""
    array = np.random.default_rng(5).integers(0, 2, 1000).astype(np.float64)  # any real dtype adds them up exactly
    x = real(array, card)
    for begin in (1, 2, 3, 5, 7, 13, 31):
        part, wanted = x[begin:], array[begin:]
        what = f"from element {begin} of a block on"
        expect(part * 2, wanted * 2, f"pointwise of {card.real}", what, card)
        expect(ts.cumsum(part[:50], 0), np.cumsum(wanted[:50]), f"scan of {card.real}", what, card)
        expect(part.sum(), np.array(wanted.sum()), f"reduce of {card.real}", what, card)


def registered(card: Card) -> tuple[Any, Any]:
    """Memory of NumPy's of an odd number of bytes, off any boundary, and the same memory as the device sees it."""
    whole = ts.from_numpy(np.arange(70_000) * 7919 % 251 + 1).to(ts.uint8)
    mine = whole[13:-6]
    try:
        return mine, ts.backends.register_host_memory(mine, card.device)
    except RuntimeError as error:
        pytest.skip(str(error).partition(";")[0])


def test_registered_memory_is_the_same(card: Card) -> None:
    """host_register: copies read and write what its owner sees, at any place in it."""
    mine, seen = registered(card)
    there = ts.zeros(mine.numel(), dtype=ts.uint8, device=card.device)
    for turn, (begin, end) in enumerate(((0, mine.numel()), (101, 40_000), (4096, 4099))):
        mine.copy_(mine + 3)  # uint8 wraps around
        there[begin:end].copy_(seen[begin:end], non_blocking=True)
        ts.synchronize(card.device)
        _same(there[begin:end].cpu(), mine[begin:end], f"from bytes {begin} to {end} of registered memory", card)
        there[begin:end].fill_(turn)
        kept = mine.clone()
        kept[begin:end] = turn
        seen[begin:end].copy_(there[begin:end], non_blocking=True)
        ts.synchronize(card.device)
        _same(mine, kept, f"to bytes {begin} to {end} of registered memory", card)
        mine.copy_(ts.arange(mine.numel()) * 31 % 253)


def test_registered_memory_stays_its_owners(card: Card) -> None:
    """host_unregister: when the device lets go, the memory is as it was, and can be registered again."""
    for _ in range(3):
        mine, seen = registered(card)
        kept = mine.clone()
        there = seen.to(card.device)
        del seen
        gc.collect()
        ts.synchronize(card.device)
        _same(mine, kept, "after host_unregister: the memory of its owner", card)
        again = ts.backends.register_host_memory(mine, card.device)
        _same(again.to(card.device).cpu(), kept, "from memory that is registered again", card)
        _same(there.cpu(), kept, "what was copied from memory that was registered then", card)


def _same(found: ts.Tensor, wanted: ts.Tensor, what: str, card: Card) -> None:
    wrong = found != wanted
    if wrong.any():
        at = int(wrong.int().argmax().item())
        pytest.fail(
            f"host_register on {card.name}: {what}: byte {at} of {wrong.numel()} is {found[at].item()}, expected "
            f"{wanted[at].item()} ({int(wrong.sum().item())} wrong)",
            pytrace=False,
        )


def test_statistics(card: Card) -> None:
    """What is allocated is counted, and given back."""
    ts.synchronize(card.device)
    before = ts.memory_allocated(card.device)
    x = ts.empty(1 << 20, dtype=ts.uint8, device=card.device)
    assert ts.memory_allocated(card.device) - before >= 1 << 20
    assert ts.max_memory_allocated(card.device) >= ts.memory_allocated(card.device)
    del x
    assert ts.memory_allocated(card.device) == before
    ts.empty_cache(card.device)
    assert ts.ones(3, device=card.device).sum().item() == 3


def test_nothing_takes_no_memory(card: Card) -> None:
    """Tensors without elements."""
    x = ts.empty(0, 5, device=card.device)
    assert (x + 1).shape == (0, 5)
    assert x.sum().item() == 0
    assert ts.cat((x, ts.ones(1, 5, device=card.device))).tolist() == [[1.0] * 5]


def test_out_of_memory_is_explained(card: Card) -> None:
    """An impossible request raises OutOfMemoryError naming the size, and the device goes on working."""
    gc.collect()
    before = ts.memory_allocated(card.device)
    with pytest.raises(ts.OutOfMemoryError) as caught:
        ts.empty(1 << 60, dtype=ts.uint8, device=card.device)
    message = str(caught.value)
    assert re.search(r"[\d.]+ ?[KMGTP]?i?B|bytes", message), f"the message does not say how much was asked: {message}"
    assert card.name in message, f"the message does not name the device: {message}"
    assert ts.memory_allocated(card.device) <= before
    assert (ts.ones(1000, device=card.device) * 2).sum().item() == 2000


def test_endurance(card: Card) -> None:
    """Ten thousand results that come and go leave the statistics where they were."""
    x = ts.ones(64, device=card.device)
    for _ in range(100):
        x * 2
    before = ts.memory_allocated(card.device)
    for _ in range(10_000):
        x * 2
    assert ts.memory_allocated(card.device) == before
