"""What a card offers beside computing, where it does: its times, who it is, memory for other processes, recovery."""

# The names of tesserack and tesserack.nn are collected, which type checkers do not see.
# mypy: disable-error-code="attr-defined,no-any-return"
from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tesserack as ts
from tesserack.backends._discovery import claims
from tesserack.testing.conformance.card import Card
from tesserack.utils.profiler import profile, record_function

_SECONDS = 120
_SLACK = 2e-4  # seconds by which clocks that are converted may be apart
COUNT = 100_000


def offers(card: Card, what: str, slot: str) -> None:
    """Skip the test where the card leaves the slot empty."""
    if not card.capabilities[what]:
        pytest.skip(f"offers no {slot}")


def work(device: Any) -> Any:
    """A few kernels and a copy each way; the last value is 3."""
    x = ts.ones(COUNT, device=device) + ts.ones(COUNT).to(device)
    return (x * 1.5).sum().item() / COUNT


def profiled(card: Card) -> tuple[Any, float, float]:
    """A profile of some work that nothing else runs beside, and when it was, in microseconds."""
    work(card.device)
    ts.synchronize(card.device)
    begin = time.perf_counter_ns() / 1e3
    with profile() as prof:
        work(card.device)
        ts.synchronize(card.device)
    return prof, begin, time.perf_counter_ns() / 1e3


def own(card: Card, prof: Any) -> list[Any]:
    """What the card under test told."""
    return [done for done in prof.device_events() if done.device.partition(":")[0] == card.name]


# --- the profiler ----------------------------------------------------------------------------------------------------


def test_every_kernel_is_told_once(card: Card) -> None:
    """Each call that ran on the card has an activity with its number, and each number is of a call."""
    offers(card, "profiler", "profiler")
    prof, _, _ = profiled(card)
    calls = {k.number: k.name for k in prof.kernels() if k.device.partition(":")[0] == card.name}
    kernels = [done for done in own(card, prof) if done.kind == "kernel"]
    told = {done.call for done in kernels}
    silent = [f"{name} (call {number})" for number, name in calls.items() if number not in told]
    if silent:
        pytest.fail(f"profiler of {card.name}: tells nothing of {', '.join(silent[:4])}", pytrace=False)
    foreign = sorted(told - calls.keys() - {0})
    if foreign:
        pytest.fail(f"profiler of {card.name}: tells of call {foreign[0]}, which nobody made", pytrace=False)
    seen = [(d.name, d.call, d.start, d.end) for d in kernels]
    if len(seen) != len(set(seen)):
        pytest.fail(f"profiler of {card.name}: tells the same kernel twice", pytrace=False)


def test_times_lie_within_the_work(card: Card) -> None:
    """Nanoseconds of the host's clock: nothing begins before it was called for, or ends after the device was idle."""
    offers(card, "profiler", "profiler")
    prof, begin, end = profiled(card)
    events = own(card, prof)
    calls = {k.number: k.start for k in prof.kernels()}
    for done in events:
        what = f"profiler of {card.name}: {done.kind} {done.name!r}"
        if done.end < done.start:
            pytest.fail(f"{what} ends {done.start - done.end:.0f} us before it begins", pytrace=False)
        asked = max(begin, calls.get(done.call, begin)) - _SLACK * 1e6
        if not asked <= done.start <= done.end <= end + _SLACK * 1e6:
            pytest.fail(
                f"{what} lies from {done.start - begin:.0f} to {done.end - begin:.0f} us of {end - begin:.0f} us that "
                "the work took: times are nanoseconds of the host's steady clock",
                pytrace=False,
            )
    busy = sum(done.end - done.start for done in events if done.kind == "kernel")
    if busy <= 0:
        pytest.fail(f"profiler of {card.name}: its kernels took no time", pytrace=False)
    streams = {done.stream for done in events if done.kind == "kernel"}
    if len(streams) == 1 and busy > (end - begin) * 1.05:
        pytest.fail(
            f"profiler of {card.name}: {busy:.0f} us of work on one stream within {end - begin:.0f}", pytrace=False
        )


def test_operators_get_the_times_of_their_kernels(card: Card) -> None:
    """As the table shows them: what the device took for kernels is shared out, none of it lost."""
    offers(card, "profiler", "profiler")
    prof, _, _ = profiled(card)
    numbers = {k.number for k in prof.kernels()}
    took = sum(d.end - d.start for d in prof.device_events() if d.kind == "kernel" and d.call in numbers)
    assert sum(event.self_device_time_total for event in prof.events()) == pytest.approx(took)
    assert "Self device time total" in prof.key_averages().table(sort_by="self_device_time_total")


def test_ranges_surround_their_work(card: Card) -> None:
    """What record_function() names, as the device came past it; ranges nest."""
    offers(card, "profiler", "profiler")
    with profile() as prof:
        with record_function("outer"):
            work(card.device)
            with record_function("inner"):
                work(card.device)
        ts.synchronize(card.device)
    events = own(card, prof)
    ranges = {d.name: d for d in events if d.kind == "range"}
    if not ranges:
        pytest.skip("offers no push_range")
    inner, outer = ranges.get("inner"), ranges.get("outer")
    assert inner and outer, f"profiler of {card.name}: ranges told are {sorted(ranges)}"
    slack = _SLACK * 1e6
    assert outer.start - slack <= inner.start <= inner.end <= outer.end + slack, "an inner range lies outside its outer"
    spans = [(e.start, e.end) for e in prof.events() if e.name == "inner"]
    calls = [k.number for k in prof.kernels() if spans[0][0] <= k.start <= spans[0][1]]
    kernels = [d for d in events if d.kind == "kernel" and d.call in calls]
    outside = [d.name for d in kernels if not inner.start - slack <= d.start <= d.end <= inner.end + slack]
    if outside:
        pytest.fail(
            f"profiler of {card.name}: {outside[0]} was called within a range and lies outside it", pytrace=False
        )


def test_copies_tell_their_bytes(card: Card) -> None:
    """Where copies are told at all."""
    offers(card, "profiler", "profiler")
    with profile() as prof:
        x = ts.ones(COUNT).to(card.device)
        ts.synchronize(card.device)
    copies = [d for d in own(card, prof) if d.kind == "copy"]
    if not copies:
        pytest.skip("tells no copies")
    largest = max(d.value for d in copies)
    if largest != x.nbytes:
        pytest.fail(f"profiler of {card.name}: a copy of {x.nbytes} bytes is told as {largest}", pytrace=False)


def test_nothing_is_told_twice_or_without_being_asked(card: Card) -> None:
    """What was collected is not told again, and what happens outside of profiles is not told."""
    offers(card, "profiler", "profiler")
    with profile() as first:
        work(card.device)
        early = len(first.device_events())
        assert len(first.device_events()) == early, f"profiler of {card.name}: collecting twice tells activities twice"
    work(card.device)
    ts.synchronize(card.device)
    with profile() as second:
        pass
    late = [d.name for d in own(card, second) if d.kind in ("kernel", "copy")]
    assert not late, f"profiler of {card.name}: tells of {late[0]}, which ran before the profile was started"


# --- who it is -------------------------------------------------------------------------------------------------------

_WHO = """
import json, sys
import tesserack as ts
name = sys.argv[1]
print(json.dumps([str(ts.backends.identity(f"{name}:{k}").uuid) for k in range(int(sys.argv[2]))]))
"""


def test_an_identity_is_one_devices(card: Card) -> None:
    """No two devices have one uuid or one bus, and every process is told the same."""
    found = [ts.backends.identity(f"{card.name}:{k}") for k in range(card.capabilities["device_count"])]
    if not any(one.uuid or one.bus for one in found):
        pytest.skip("offers no identify")
    for what in ("uuid", "bus"):
        known = [getattr(one, what) for one in found if getattr(one, what)]
        assert len(known) == len(set(known)), f"identify of {card.name}: several devices have the {what} {known[0]}"
    if card.name in claims():
        told = json.loads(_process(_WHO, card.name, str(len(found))))
        here = [str(one.uuid) for one in found]
        assert told == here, f"identify of {card.name}: another process is told {told}, this one {here}"


def test_links_are_those_of_copies(card: Card) -> None:
    """A direct link needs copy_peer, and copies across each link arrive."""
    links = [ts.backends.Link(**one) for one in card.capabilities["links"]]
    if not links:
        pytest.skip("offers no link, or has one device")
    for one in links:
        if one.direct and not card.capabilities["peer_copies"]:
            pytest.fail(
                f"link of {card.name}: {one.source} to {one.target} is direct, without copy_peer", pytrace=False
            )
        x = ts.arange(1000, device=one.source)
        assert x.to(one.target).tolist() == [*range(1000)], f"{one.source} to {one.target}"
    there = {(one.source, one.target) for one in links}
    assert there == {(b, a) for a, b in there}, f"link of {card.name}: told in one direction only"


# --- memory for other processes --------------------------------------------------------------------------------------

_READ = """
import sys
import tesserack as ts
device, name, nbytes = sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3])
memory = ts._native._import_memory(ts._native._resolve_device(device), name, nbytes, -1).view(ts.float32)
again = ts._native._import_memory(ts._native._resolve_device(device), name, nbytes, -1).view(ts.float32)
print(memory.cpu().sum().item(), again[-1].item())
del again
memory[1] = -5.0
ts.synchronize(device)
"""


def test_other_processes_use_the_memory(card: Card) -> None:
    """They read what was written, what they write is seen, and after them the memory is still there."""
    offers(card, "sharing", "sharing")
    if card.name not in claims():
        pytest.skip("not installed: registered by this process")
    for count in (16, COUNT):
        x = ts.ones(count, device=card.device)
        x[-1] = 7.0
        name = ts._native._export_memory(x)
        if name is None:
            pytest.skip("declines to share this memory")
        told = _process(_READ, str(card.device), name.hex(), str(x.nbytes)).split()
        if [float(word) for word in told] != [count + 6.0, 7.0]:
            pytest.fail(
                f"sharing of {card.name}: another process read {told}, expected {count + 6.0} and 7.0", pytrace=False
            )
        if x[1].item() != -5.0:
            pytest.fail(f"sharing of {card.name}: what another process wrote is not seen: it got a copy", pytrace=False)
        assert x.sum().item() == count, f"sharing of {card.name}: the memory changed when the other process let go"
        y = ts.full((count,), 2.0, device=card.device)
        assert (x + y).sum().item() == 3.0 * count, f"sharing of {card.name}: after it, kernels compute wrongly"


def test_names_that_mean_nothing_are_refused(card: Card) -> None:
    """By an error, not by memory."""
    offers(card, "sharing", "sharing")
    for name in (b"", b"nothing", bytes(64)):
        with pytest.raises((RuntimeError, ValueError)):
            ts._native._import_memory(card.device, name, 64, -1)


# --- recovery --------------------------------------------------------------------------------------------------------

_RECOVER = """
import sys
import tesserack as ts
device = sys.argv[1]
def computed():
    x = ts.arange(12, device=device).to(ts.get_default_dtype()).reshape(3, 4)
    at = 3 - ts.arange(4, device=device).expand(3, 4)
    made = {"matmul": x @ x.t(), "reduce": x.sum(1), "scan": x.cumsum(1), "pointwise": x * 2 + 1, "copy_cast": x.long()}
    made |= {"sort": x.sort(1, descending=True).indices, "gather": x.gather(1, at), "scatter": x.scatter(1, at, x)}
    return {name: value.tolist() for name, value in made.items()}
before = computed()
kept = ts.full((1000,), 3.0, device=device)
event = ts.Event(device=device)
event.record()
gone = ts.ones(70000, device=device)
del gone  # in the cache
ts.backends.recover(device)
for use in (lambda: kept + 1, lambda: kept.cpu(), lambda: kept.fill_(0.0), lambda: ts.ones(1000, device=device) + kept):
    try:
        use()
    except ts.DeviceLostError:
        continue
    print("memory of before could be used")
assert event.query()
for name, value in computed().items():
    if value != before[name]:
        print(f"{name}, used before and after it, gave {value} for {before[name]}: kept from before")
fresh = [ts.full((70000,), float(k), device=device) for k in range(4)]
del kept
for k in range(4):
    if fresh[k].sum().item() != 70000.0 * k:
        print(f"after it, a kernel gave {fresh[k].sum().item()} for {70000.0 * k}")
held = ts.memory_stats(device)["allocated"]
if held > 4 * 70000 * 4 * 1.5:
    print(f"{held} bytes count as allocated")
print("done")
"""


def test_a_recovered_device_computes(card: Card) -> None:
    """Memory of before is refused, not read; new memory is right; nothing of before is freed a second time."""
    offers(card, "recovery", "recover")
    if card.name not in claims():
        pytest.skip("not installed: registered by this process")
    told = _process(_RECOVER, str(card.device)).splitlines()
    if told != ["done"]:
        pytest.fail(f"recover of {card.name}: {told[0] if told else 'the process said nothing'}", pytrace=False)


def _process(program: str, *arguments: str) -> str:
    """What a process of its own prints; a failure of the test where it fails."""
    command = [sys.executable, "-X", "faulthandler", "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, cwd=Path.cwd())
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        pytest.fail(
            f"another process ended with status {done.returncode}: {last}\n{done.stderr[-3000:]}", pytrace=False
        )
    return done.stdout
