"""Faults planted in a simulated device: the kit finds each, and says what it is."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faults
import pytest
from cards import late_cards
from faults import Fault
from faults_habits import HABITS, OWN
from faults_makers import MAKERS
from faults_paths import DILATED, PATHS
from faults_ranks import RANKS
from faults_services import SERVICES
from faults_trials import TRIALS
from faults_vendors import VENDORS
from tesserack.testing import conformance, seeds
from tesserack.testing.conformance.areas import REQUIRED

KIT = Path(conformance.__file__).parent
Conform = Callable[..., tuple[str, Any]]
Installed = Callable[..., dict[str, str]]


# The whole catalogue takes minutes: a tenth of it, another with every commit; FULL=1 runs all.
SHARE = 10
ALL_IN_PYTHON = faults.PYTHON | SERVICES | RANKS | VENDORS | HABITS | MAKERS | TRIALS | PATHS
ALL_IN_C = faults.NATIVE | faults.STREAMS | OWN | DILATED
IN_PYTHON = seeds.turn([*ALL_IN_PYTHON], SHARE)
IN_C = seeds.turn([*ALL_IN_C], SHARE)
KERNELS = seeds.turn(REQUIRED, SHARE)


def check(planted: Fault, text: str, found: Any) -> None:
    """The test whose business it is fails with a message that names the fault; others go on to pass."""
    cases = {case["id"]: case for case in found["cases"]}
    assert cases[planted.test]["outcome"] == "failed", text
    title = cases[planted.test]["message"].strip().splitlines()[0]
    assert re.search(planted.message, title), title
    if planted.innocent:
        assert cases[planted.innocent]["outcome"] == "passed", cases[planted.innocent]["message"]


def sound(names: list[str]) -> dict[tuple[str, str], list[str]]:
    """Faults by the sound card that each was made from, and the areas in which it is found."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in names:
        found.setdefault((parent(name), ALL_IN_PYTHON[name].arguments[1]), []).append(name)
    return found


def parent(name: str) -> str:
    """The sound card that a faulty one was made from."""
    if name in ("slowclock", "fastclock", "microseconds", "seconds", "hasty"):
        return "queued"
    if name in SERVICES or name == "stale":
        return "served"
    if name in late_cards():
        return "latejoined" if name in RANKS else "latehealthy"
    return "joined" if name in RANKS or name in ("firstpiece", "lostnan") else "healthy"


def test_every_fault_names_tests_of_the_kit() -> None:
    """Also those whose turn it is not: a test that was renamed or split is seen at once."""
    named = {test for fault in [*ALL_IN_PYTHON.values(), *ALL_IN_C.values()] for test in (fault.test, fault.innocent)}
    for test in sorted(named - {""}):
        file, _, case = test.partition("::")
        assert f"def {case.partition('[')[0]}(" in (KIT / file).read_text(), test


@pytest.mark.parametrize("name", IN_PYTHON)
def test_fault_in_python_is_found_and_named(name: str, conform_mutant: Conform) -> None:
    """In a backend written in Python."""
    planted = ALL_IN_PYTHON[name]
    check(planted, *conform_mutant(planted.card or name, *planted.arguments, **planted.environment))


@pytest.mark.parametrize(("card", "areas"), sound(IN_PYTHON))
def test_sound_cards_pass(card: str, areas: str, conform_mutant: Conform) -> None:
    """All that is asked of the faulty cards made from them, in one run."""
    planted = [ALL_IN_PYTHON[name] for name in sound(IN_PYTHON)[card, areas]]
    rest = [fault.arguments[2:] for fault in planted]
    assert all(not words or (words[0] == "-k" and len(words) == 2) for words in rest), rest
    asked = sorted({f"({words[1]})" for words in rest if words})
    chosen = ["-k", " or ".join(asked)] if all(rest) else []
    text, found = conform_mutant(card, "--areas", areas, *chosen)
    outcomes = {case["id"]: case["outcome"] for case in found["cases"]}
    assert set(outcomes.values()) <= {"passed", "skipped"}, text
    assert {outcomes[fault.test] for fault in planted} == {"passed"}, text


@pytest.mark.parametrize("fault", IN_C)
def test_fault_is_found_and_named(fault: str, conform_shadow: Conform) -> None:
    """Each by the test whose business it is."""
    planted = ALL_IN_C[fault]
    check(planted, *conform_shadow(fault, *planted.arguments))


def test_without_a_fault_it_is_complete(conform_shadow: Conform) -> None:
    """The simulated device passes what it fails with a fault."""
    text, found = conform_shadow("", "--quick")
    assert [case["id"] for case in found["cases"] if case["outcome"] == "failed"] == [], text
    assert found["level"] == "complete", text


def test_a_declared_lack_is_no_fault(conform_shadow: Conform) -> None:
    """A device without float64 says so, and is tested for the rest: gradients against the cpu."""
    text, found = conform_shadow("no float64", "--quick")
    assert [case["id"] for case in found["cases"] if case["outcome"] == "failed"] == [], text
    assert found["level"] == "complete", text
    reasons = {case["message"] for case in found["cases"] if case["outcome"] == "skipped"}
    assert "lacks float64" in reasons
    checked = {case["id"] for case in found["cases"] if case["outcome"] == "passed" and case["area"] == "gradients"}
    assert len(checked) > 100


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_element_too_many_is_found(kernel: str, conform_mutant: Conform) -> None:
    """A kernel that writes one element past the end of its output, whose values are right."""
    test = f"test_required_kernel_keeps_to_its_output[{kernel}-float32]"
    where = r"up to 4 bytes \(1 elements\)"
    if kernel == "random_bits":  # which fills a temporary, from which the output is made
        test, where = "test_temporaries_end_where_they_end[random_bits, 32 bits]", "up to 4 bytes behind 80 bytes"
    planted = Fault(
        ("--areas", "bounds", "-k", "float32 or temporaries"),
        f"test_bounds.py::{test}",
        f"{kernel}.* on past: wrote past the end of the output: {where}",
        f"test_bounds.py::test_required_kernel_keeps_to_its_output[{'iota' if kernel == 'fill' else 'fill'}-float32]",
    )
    check(planted, *conform_mutant("past", *planted.arguments, PAST_THE_END=kernel))


def test_limits_that_are_declared_but_not_kept_are_found(conform_mutant: Conform) -> None:
    """A block as large as there may be, says the device, and then has no such block."""
    text, found = conform_mutant("boasting", "--areas", "dtypes", "-k", "limits")
    assert [case["outcome"] for case in found["cases"]] == ["failed"], text
    assert "OutOfMemoryError" in found["cases"][0]["message"]


def test_times_of_the_host_are_found(conform_mutant: Conform) -> None:
    """Events that tell when the host asked for them; those that tell when the device came there pass."""
    arguments = ("--areas", "streams", "-k", "elapsed_time_is")
    text, found = conform_mutant("queued", *arguments)
    assert [case["outcome"] for case in found["cases"]] == ["passed"], text
    text, found = conform_mutant("hosttimes", *arguments)
    assert [case["outcome"] for case in found["cases"]] == ["failed"], text
    message = found["cases"][0]["message"]
    assert re.search(r"elapsed_time\(\) on hosttimes tells \S+ % of the time that the host waited", message), message


@pytest.mark.parametrize("other", seeds.turn(("evencopies", "longuploads", "careless", "dying"), 2))
def test_a_fault_of_another_card_is_not_this_ones(other: str, conform_mutant: Conform) -> None:
    """Copies between devices are judged by those that copy rightly by themselves."""
    text, found = conform_mutant("healthy", "--areas", "copies", "-k", "between", beside=other)
    assert [case["outcome"] for case in found["cases"]] == ["passed"], text


def test_failures_of_one_cause_are_told_once(conform_mutant: Conform) -> None:
    """With a command that repeats one of them."""
    text, found = conform_mutant("past", "--areas", "bounds", "-k", "reduce", PAST_THE_END="reduce")
    (largest, *_) = found["causes"]
    assert largest["count"] > 5, text
    assert "more that say the same, of reduce" in text
    command = f"tesserack conform past --case '{found['cases'][0]['id']}'"
    assert command in text and largest["command"] == command
    words = shlex.split(command)[3:]
    again, repeated = conform_mutant("past", *words, PAST_THE_END="reduce")
    assert [case["id"] for case in repeated["cases"]] == [words[1]], again
    assert repeated["cases"][0]["outcome"] == "failed"


def test_ways_and_waits_are_told(conform_mutant: Conform) -> None:
    """A kernel that declines is no longer the device's own: its operators wait, and are what to optimise next."""
    arguments = ("--areas", "required,operators", "-k", "test_values and float32 and (cumsum or nonzero or conv1d)")
    _, whole = conform_mutant("healthy", *arguments)
    assert whole["ways"]["cumsum"] == "native" and whole["ways"]["conv1d"] == "decomposed"
    text, lacking = conform_mutant("declining", *arguments)
    assert lacking["ways"]["cumsum"] == "fallback", text
    assert lacking["optimise_next"][0].startswith("scan: ran on the cpu in"), lacking["optimise_next"]
    waits = {case["op"]: case.get("waits", 0) for case in lacking["cases"]}
    assert waits["conv1d"] == 0 and waits["nonzero"] > 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dying", r"asked for its devices, it ended the process \(SIGSEGV\)"),
        ("dead", r"asked for its devices, it ended the process \(exit status 7\)"),
    ],
)
def test_a_probe_that_ends_the_process_ends_only_that(name: str, message: str, mutants: Installed) -> None:
    """The kit says so, and other devices are still told."""
    environment = mutants("healthy", name, "chatty")
    command = [sys.executable, "-m", "tesserack.testing.conform", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and re.search(message, done.stderr), done.stderr
    command = [sys.executable, "-m", "tesserack", "devices", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    told = {record["name"]: record["status"] for record in json.loads(done.stdout)}
    assert told[name] == "crashed" and told["healthy"] == told["chatty"] == "ready"


def test_what_a_card_prints_is_not_in_the_json(mutants: Installed) -> None:
    """On standard output there is nothing else."""
    words = ["chatty", "--areas", "views", "-k", "test_view and flatten", "--json", "-"]
    command = [sys.executable, "-m", "tesserack.testing.conform", *words]
    done = subprocess.run(command, env=mutants("chatty"), capture_output=True, text=True, timeout=300)
    assert json.loads(done.stdout)["device"] == "chatty", done.stderr
    assert done.returncode == 0
