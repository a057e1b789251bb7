"""The catalogue, continued: what kernels forget between calls, and what they round, cut or hide."""

from __future__ import annotations

from faults import Fault

__all__ = ["VENDORS"]


VENDORS: dict[str, Fault] = {
    "uncleaned": Fault(
        ("--areas", "required", "-k", "test_values and (sum or amax)"),
        "test_operators.py::test_values[sum-float32]",
        "sum of float32 on uncleaned: the second of two same calls is wrong: the kernel keeps something from one to",
        "test_operators.py::test_values[amax-float32]",
    ),
    "denseout": Fault(
        ("--areas", "bounds", "-k", "float32"),
        "test_bounds.py::test_required_kernel_keeps_to_its_output[pointwise-float32]",
        "pointwise of float32 on denseout: wrote into the gaps of a strided output",
        "test_bounds.py::test_required_kernel_keeps_to_its_output[reduce-float32]",
    ),
    "index32": Fault(
        ("--areas", "capabilities", "-k", "indices"),
        "test_capabilities.py::test_indices_have_64_bits[gather-4294967297]",
        r"gather on index32: the index 4294967297 of 4 elements is not refused: the kernel takes the lower 32 bits",
        "test_capabilities.py::test_indices_have_64_bits[scatter-4294967297]",
    ),
    "clamps": Fault(
        ("--areas", "capabilities", "-k", "errors or first"),
        "test_capabilities.py::test_errors_come_from_kernels",
        "gather on clamps: the index 7 of 4 elements is not refused, by the call or the next wait",
        "test_capabilities.py::test_first_values[gather]",
    ),
    "subbuffer": Fault(
        ("--areas", "memory", "-k", "any_offset or no_memory"),
        "test_memory.py::test_kernels_take_any_offset",
        r"pointwise of float32 on subbuffer: from element 1 of a block on: element \[1\]: expected",
        "test_memory.py::test_nothing_takes_no_memory",
    ),
    "pluszero": Fault(
        ("--areas", "required", "-k", "sign_of_zero and (amax or sort)"),
        "test_operators.py::test_sign_of_zero[amax-float32]",
        "amax of float32 minus zeros on pluszero: expected -0.0, got the other",
    ),
    "byteofone": Fault(
        ("--areas", "edges", "-k", "truth"),
        "test_edges.py::test_truth_is_not_0[2]",
        r"reduce, any of bool on byteofone: bytes 0 and 2: element \[1\]: expected True, got False",
        "test_edges.py::test_truth_is_0_or_1[reduce, any]",
    ),
    "halfsums": Fault(
        ("--areas", "edges", "-k", "long_sums"),
        "test_edges.py::test_long_sums[float16]",
        "reduce, sum of float16 on halfsums: rows of 4100: .*expected 4100.0, got 2048.0",
        "test_edges.py::test_long_sums[float32]",
    ),
    "lostmax": Fault(
        ("--areas", "forms", "-k", "test_duplicates"),
        "test_forms.py::test_duplicates[float32]",
        "scatter, .* of float32",
    ),
    "saturates": Fault(
        ("--areas", "copies", "-k", "test_cast"),
        "test_copies.py::test_cast[int64-int8]",
        r"copy_cast of int64 to int8 on saturates: contiguous: element \[248\]: expected -128, got 127",
        "test_copies.py::test_cast[float32-float16]",
    ),
    "largesthalf": Fault(
        ("--areas", "copies", "-k", "test_cast"),
        "test_copies.py::test_casts_beyond_the_largest_number[float32-float16]",
        "copy_cast of float32 to float16 on largesthalf: 65520 becomes 65504, not inf: casts beyond the largest",
        "test_copies.py::test_casts_beyond_the_largest_number[float64-float32]",
    ),
    "cutbfloat": Fault(
        ("--areas", "copies", "-k", "test_cast and bfloat16"),
        "test_copies.py::test_cast[float32-bfloat16]",
        r"copy_cast of float32 to bfloat16 on cutbfloat: contiguous: element \[\d+\]: expected",
        "test_copies.py::test_cast[float64-bfloat16]",
    ),
    "restarts": Fault(
        ("--areas", "random", "-k", "bit_equal"),
        "test_random.py::test_bit_equal_with_cpu[rand-1000]",
        "the random_bits kernel does not give the documented Philox stream",
    ),
    "bydoubles": Fault(
        ("--areas", "edges", "-k", "floats_hold"),
        "test_edges.py::test_beyond_what_floats_hold[pointwise, add]",
        r"pointwise, add of int64 on bydoubles: beyond 2\^53",
        "test_edges.py::test_beyond_what_floats_hold[fill]",
    ),
    "nanfirst": Fault(
        ("--areas", "edges", "-k", "test_nan and float32"),
        "test_edges.py::test_nan[sort-float32]",
        "sort of float32 on nanfirst: 7 elements, NaN in place 0: .*got nan",
        "test_edges.py::test_nan[reduce, max-float32]",
    ),
    "nonanplace": Fault(
        ("--areas", "edges", "-k", "test_nan and float32"),
        "test_edges.py::test_nan[reduce, argmax-float32]",
        "reduce, argmax of float32 on nonanplace: 7 elements, NaN in place 0: expected 0, got",
        "test_edges.py::test_nan[reduce, max-float32]",
    ),
    "stepsup": Fault(
        ("--areas", "capabilities", "-k", "first"),
        "test_capabilities.py::test_first_values[iota, downwards]",
        r"iota, downwards on stepsup: .*expected 2, got 8",
        "test_capabilities.py::test_first_values[iota]",
    ),
    "otherstream": Fault(
        ("--areas", "streams", "-k", "events_order"),
        "test_streams.py::test_events_order_streams",
        r"a stream that waited for an event with wait_event\(\) on otherstream: .*the work was not ordered",
    ),
    "atonce": Fault(
        ("--areas", "slots"),
        "test_slots.py::test_slot[freed_in_order]",
        "atonce: free: a copy of 1048576 bytes that was given to the stream before it reads what came after",
        "test_slots.py::test_slot[source_may_go]",
    ),
    "silent": Fault(
        ("--areas", "capabilities", "-k", "errors"),
        "test_capabilities.py::test_errors_are_told_by_waiting",
        "gather on silent: synchronize does not tell that an index was out of range",
        "test_capabilities.py::test_errors_come_from_kernels",
    ),
}
