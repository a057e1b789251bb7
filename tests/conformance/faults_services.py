"""What is planted in cards that offer more than computing: profiles, identity, shared memory, recovery."""

from __future__ import annotations

from faults import Fault

__all__ = ["SERVICES"]


def served(test: str, message: str, innocent: str) -> Fault:
    """Found in the area of services."""
    module = "test_services.py::"
    return Fault(("--areas", "services", "-k", f"{test} or {innocent}"), module + test, message, module + innocent)


_NUMBERS, _TIMES, _AGAIN = (
    "test_every_kernel_is_told_once",
    "test_times_lie_within_the_work",
    "test_nothing_is_told_twice_or_without_being_asked",
)
_WHO, _SHARED = "test_an_identity_is_one_devices", "test_other_processes_use_the_memory"

#: In the cards of ``mutants_services.py``.
SERVICES: dict[str, Fault] = {
    "twicetold": served(_AGAIN, "profiler of twicetold: collecting twice tells activities twice", _TIMES),
    "microtimes": served(
        _TIMES, r"profiler of microtimes: kernel '\w+' lies from -\d+ to -\d+ us of \d+ us that the work took", _NUMBERS
    ),
    "backwards": served(_TIMES, r"profiler of backwards: kernel '\w+' ends \d+ us before it begins", _NUMBERS),
    "nonumbers": served(_NUMBERS, r"profiler of nonumbers: tells nothing of fill \(call \d+\), ", _TIMES),
    "strangers": served(_NUMBERS, r"profiler of strangers: tells nothing of reduce \(call \d+\)", _TIMES),
    "always": served(_AGAIN, r"profiler of always: tells of \w+, which ran before the profile was started", _WHO),
    "shortranges": served(
        "test_ranges_surround_their_work",
        r"profiler of shortranges: \w+ was called within a range and lies outside it|an inner range lies outside",
        _NUMBERS,
    ),
    "elements": served(
        "test_copies_tell_their_bytes", "profiler of elements: a copy of 400000 bytes is told as 100000", _NUMBERS
    ),
    "anybody": served(_WHO, "identify of anybody: another process is told", _NUMBERS),
    "oneforall": served(_WHO, "identify of oneforall: several devices have the uuid", _NUMBERS),
    "boaster": served(
        "test_links_are_those_of_copies", "link of boaster: boaster:0 to boaster:1 is direct, without copy_peer", _WHO
    ),
    "copying": served(_SHARED, "sharing of copying: what another process wrote is not seen: it got a copy", _WHO),
    "cutting": served(_SHARED, "sharing of cutting: .*", _WHO),
    "believing": served("test_names_that_mean_nothing_are_refused", "DID NOT RAISE", _SHARED),
    "unrecovered": served("test_a_recovered_device_computes", "unrecovered:0 is still lost", _SHARED),
}
