"""Faults planted in a simulated device: the kit finds each, and says what it is."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import tesserack as ts
from tesserack.testing.conformance.areas import REQUIRED

Conform = Callable[..., tuple[str, Any]]


@dataclass(frozen=True)
class Fault:
    """What to run, which test must fail, and what the failure must say."""

    arguments: tuple[str, ...]
    test: str
    message: str
    innocent: str  # a test that runs too, and must pass, unless the fault spoils everything


FAULTS = {
    "ignored strides": Fault(
        ("--areas", "required,operators", "-k", "test_values and (cumsum or softmax)"),
        "test_operators.py::test_values[cumsum-float32]",
        r"cumsum of float32 on shadow: right or wrong by the layout of the same values \(.*transposed.*\): the kernel "
        "does not follow the strides it is given",
        "test_operators.py::test_values[softmax-float32]",
    ),
    "ignored signs": Fault(
        ("--areas", "required,operators", "-k", "test_values and (argsort or softmax)"),
        "test_operators.py::test_values[argsort-float32]",
        r"argsort of float32 on shadow: wrong for flipped input but right for contiguous: the kernel does not follow "
        "negative strides",
        "test_operators.py::test_values[softmax-float32]",
    ),
    "dropped tail": Fault(
        ("--areas", "required,copies", "-k", "test_values and sigmoid or test_layouts and contiguous"),
        "test_operators.py::test_values[sigmoid-float32]",
        "sigmoid of float32 on shadow: wrong for larger tensors only: look at what follows the last full block",
        "test_copies.py::test_layouts[shape1-contiguous-contiguous]",
    ),
    "wrong gradient": Fault(
        ("--areas", "gradients", "-k", "test_gradient and softmax and not any_layout"),
        "test_gradients.py::test_gradient[softmax]",
        r"the gradient \(contiguous input\) of softmax on shadow is wrong, at \(float64\[2, 3\], 1\): "
        "Jacobian mismatch",
        "test_gradients.py::test_gradient[log_softmax]",
    ),
    "overlapping blocks": Fault(
        ("--areas", "memory"),
        "test_memory.py::test_blocks_never_overlap[small]",
        r"block \d+ \(\d+ bytes\) lost its contents from byte \d+ on: the allocator handed out overlapping blocks; "
        r"what lies there was written to block \d+",
        "test_memory.py::test_nothing_takes_no_memory",
    ),
    "careless copies": Fault(
        ("--areas", "slots"),
        "test_slots.py::test_slot[copies_within]",
        r"shadow: copy_within: 70001 bytes, between blocks: byte 0 of \d+ should be \d+, is \d+",
        "test_slots.py::test_slot[copies_from_host]",
    ),
    "late source": Fault(
        ("--areas", "slots", "-k", "source or too_much"),
        "test_slots.py::test_slot[source_may_go]",
        r"shadow: copy_from_host: \d+ bytes changed after it returned: it reads the source later",
        "test_slots.py::test_slot[too_much_is_refused]",
    ),
    "late random bits": Fault(
        ("--areas", "random"),
        "test_random.py::test_bit_equal_with_cpu[rand-1000]",
        "rand on shadow, seed 0, draw 0: element 0 of 1000 is .* on the cpu .*: the random_bits kernel does not give "
        "the documented Philox stream",
        "test_random.py::test_distributions",
    ),
    "crash": Fault(
        ("--areas", "operators", "-k", "test_values and (cat or softmax) and float32"),
        "test_operators.py::test_values[cat-float32]",
        r"the test ended the process \(SIGABRT\)",
        "test_operators.py::test_values[softmax-float32]",
    ),
    "hang": Fault(
        ("--areas", "operators", "-k", "test_values and (vstack or softmax) and float32", "--timeout", "8"),
        "test_operators.py::test_values[vstack-float32]",
        r"the test did not end within 8 s",
        "test_operators.py::test_values[softmax-float32]",
    ),
}

needs_streams = pytest.mark.skipif(not hasattr(ts, "Stream"), reason="this core has no streams")
STREAM_FAULTS = {
    "unordered stream": Fault(
        ("--areas", "streams"),
        "test_streams.py::test_events_order_streams",
        r"a stream that waited for an event with wait_event\(\) on shadow: expected 24.0 everywhere, got .*: the work "
        "was not ordered as the stream says",
        "test_streams.py::test_a_stream_runs_in_order",
    ),
    "reads too early": Fault(
        ("--areas", "streams"),
        "test_streams.py::test_reading_waits",
        r"item\(\) on shadow gave .* instead of 12.0: it reads before the stream has run",
        "test_streams.py::test_current_stream_is_a_context",
    ),
}


# The same in Python: devices of mutants.py, made from the reference backend.
MUTANTS = {
    "strides": Fault(
        ("--areas", "required", "-k", "test_values and (gather or cumsum) and float32"),
        "test_operators.py::test_values[gather-float32]",
        "gather of float32 on strides: .*: the kernel does not follow the strides it is given",
        "test_operators.py::test_values[cumsum-float32]",
    ),
    "gradient": Fault(
        ("--areas", "gradients", "-k", "test_gradient and softmax and not any_layout"),
        "test_gradients.py::test_gradient[softmax]",
        r"the gradient \(contiguous input\) of softmax on gradient is wrong, at \(float64\[2, 3\], 1\)",
        "test_gradients.py::test_gradient[log_softmax]",
    ),
    "misspelt": Fault(
        ("--areas", "capabilities", "-k", "test_every_kernel_has_a_use or test_properties"),
        "test_capabilities.py::test_every_kernel_has_a_use",
        r"'permute' is never called: a view or an operator that writes its arguments, which the core does itself",
        "test_capabilities.py::test_properties",
    ),
    "allocator": Fault(
        ("--areas", "memory", "-k", "overlap or nothing"),
        "test_memory.py::test_blocks_never_overlap[small]",
        r"block \d+ \(\d+ bytes\) lost its contents .*: the allocator handed out overlapping blocks",
        "test_memory.py::test_nothing_takes_no_memory",
    ),
    "careless": Fault(
        ("--areas", "slots", "-k", "not pointer"),
        "test_slots.py::test_slot[copies_to_host]",
        r"careless: copy_to_host: 1 bytes from 1: byte 0 of 1 should be \d+, is \d+",
        "test_slots.py::test_slot[copies_from_host]",
    ),
    "late": Fault(
        ("--areas", "slots", "-k", "not pointer"),
        "test_slots.py::test_slot[source_may_go]",
        r"late: copy_from_host: \d+ bytes changed after it returned: it reads the source later",
        "test_slots.py::test_slot[copies_to_host]",
    ),
    "leaky": Fault(
        ("--areas", "slots", "-k", "not pointer"),
        "test_slots.py::test_slot[memory_goes_back]",
        r"leaky: free: 60 blocks of 8 MiB .* left the process \d+ MiB larger: the memory leaks",
        "test_slots.py::test_slot[copies_to_host]",
    ),
    "unsteady": Fault(
        ("--areas", "required", "-k", "test_values and (cumsum or cumprod or cummax or argsort) and float32"),
        "test_operators.py::test_values[cumsum-float32]",
        r"cumsum of float32 on unsteady: not always wrong: a wrong call was right in \d+ of 20 repetitions: a race",
        "test_operators.py::test_values[argsort-float32]",
    ),
    "unsigned": Fault(
        ("--areas", "required", "-k", "sign_of_zero and float32 and (contiguous or abs)"),
        "test_operators.py::test_sign_of_zero[contiguous-float32]",
        "contiguous of float32 minus zeros on unsigned: expected -0.0, got the other",
        "test_operators.py::test_sign_of_zero[abs-float32]",
    ),
    "denormal": Fault(
        ("--areas", "memory", "-k", "offset or nothing"),
        "test_memory.py::test_kernels_take_any_offset",
        "after this test the processor flushes denormal numbers to zero: a kernel or copy changed the mode",
        "",
    ),
    "large": Fault(
        ("--areas", "sizes", "-k", "test_millions and (pointwise or fill)"),
        "test_sizes.py::test_millions[pointwise]",
        "pointwise of 4194307 elements on large: 1194307 wrong, the first is number 3000000: expected 9000001, got 0",
        "test_sizes.py::test_millions[fill]",
    ),
    "static": Fault(
        ("--areas", "threads", "-k", "many_threads and (reduce or fill)"),
        "test_threads.py::test_kernel_in_many_threads[reduce]",
        "reduce on static gave wrong values while other threads called it: it keeps a buffer, or arguments",
        "test_threads.py::test_kernel_in_many_threads[fill]",
    ),
    "steps": Fault(
        ("--areas", "threads", "-k", "many_threads and (pointwise or fill)"),
        "test_threads.py::test_kernel_in_many_threads[pointwise]",
        "pointwise on steps gave wrong values while other threads called it: it keeps a buffer, or arguments",
        "test_threads.py::test_kernel_in_many_threads[fill]",
    ),
    "signed": Fault(
        ("--areas", "dtypes", "-k", "test_unsigned and (lt or ge)"),
        "test_dtypes.py::test_unsigned[lt-uint16]",
        r"lt of uint16 on signed, contiguous: at \[0, \d\] \w+ instead of \w+",
        "test_dtypes.py::test_unsigned[lt-uint32]",
    ),
    "boasting": Fault(
        ("--areas", "dtypes", "-k", "limits or devices_own"),
        "test_dtypes.py::test_declared_dtype_is_the_devices_own[uint16]",
        "uint16 is declared but computed on the cpu",
        "test_dtypes.py::test_declared_dtype_is_the_devices_own[uint32]",
    ),
    "lazy": Fault(
        ("--areas", "threads", "-k", "first_use or handing"),
        "test_threads.py::test_first_use_from_many_threads",
        "lazy, first used by 8 threads at once .*no context",
        "",
    ),
}


def check(planted: Fault, text: str, found: Any) -> None:
    """The test whose business it is fails with a message that names the fault; others go on to pass."""
    cases = {case["id"]: case for case in found["cases"]}
    assert cases[planted.test]["outcome"] == "failed", text
    title = cases[planted.test]["message"].strip().splitlines()[0]
    assert re.search(planted.message, title), title
    if planted.innocent:
        assert cases[planted.innocent]["outcome"] == "passed", cases[planted.innocent]["message"]


@pytest.mark.parametrize("name", MUTANTS)
def test_fault_in_python_is_found_and_named(name: str, conform_mutant: Conform) -> None:
    """In a backend written in Python; its parent passes the same tests."""
    planted = MUTANTS[name]
    check(planted, *conform_mutant(name, *planted.arguments))
    text, found = conform_mutant("healthy", *planted.arguments)
    assert {case["outcome"] for case in found["cases"]} <= {"passed", "skipped"}, text


@pytest.mark.parametrize(
    "fault", [*FAULTS, *(pytest.param(name, marks=needs_streams) for name in STREAM_FAULTS)], ids=str
)
def test_fault_is_found_and_named(fault: str, conform_shadow: Conform) -> None:
    """Each by the test whose business it is."""
    planted = (FAULTS | STREAM_FAULTS)[fault]
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


@pytest.mark.parametrize("kernel", REQUIRED)
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
    assert re.search(r"elapsed_time\(\) on hosttimes tells \d+ % of the time that the host waited", message), message


def test_failures_of_one_cause_are_told_once(conform_mutant: Conform, mutants: dict[str, str]) -> None:
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
def test_a_probe_that_ends_the_process_ends_only_that(name: str, message: str, mutants: dict[str, str]) -> None:
    """The kit says so, and other devices are still told."""
    command = [sys.executable, "-m", "tesserack.testing.conform", name]
    done = subprocess.run(command, env=mutants, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and re.search(message, done.stderr), done.stderr
    command = [sys.executable, "-m", "tesserack", "devices", "--json"]
    done = subprocess.run(command, env=mutants, capture_output=True, text=True, timeout=600)
    told = {record["name"]: record["status"] for record in json.loads(done.stdout)}
    assert told[name] == "crashed" and told["healthy"] == "ready"


def test_what_a_card_prints_is_not_in_the_json(mutants: dict[str, str]) -> None:
    """On standard output there is nothing else."""
    words = ["chatty", "--areas", "views", "-k", "test_view and flatten", "--json", "-"]
    command = [sys.executable, "-m", "tesserack.testing.conform", *words]
    done = subprocess.run(command, env=mutants, capture_output=True, text=True, timeout=300)
    assert json.loads(done.stdout)["device"] == "chatty", done.stderr
    assert done.returncode == 0
