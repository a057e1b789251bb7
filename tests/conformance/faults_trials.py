"""The catalogue, continued: where reductions begin, memory that changes, what outputs held, and who calls."""

from __future__ import annotations

from faults import Fault
from faults_habits import number

__all__ = ["TRIALS"]


def kept(where: str, message: str) -> Fault:
    """Found by operands of the same sizes."""
    test = f"test_state.py::test_operands_of_one_size[{where}]"
    return Fault(("--areas", "state", "-k", "operands_of_one or determinism"), test, message, _DETERMINED)


def operand(kernel: str, message: str, innocent: str) -> Fault:
    """Found by what is only read, and by what an output held."""
    name = "test_bounds.py::test_required_kernel_leaves_its_operands[{}]"
    arguments = ("--areas", "bounds", "-k", "leaves_its_operands")
    return Fault(arguments, name.format(kernel), message, name.format(innocent))


def cast(dtypes: str, message: str, innocent: str) -> Fault:
    """Found by casts."""
    name = "test_copies.py::test_cast[{}]"
    return Fault(("--areas", "copies", "-k", "test_cast"), name.format(dtypes), message, name.format(innocent))


def ordered(test: str, message: str) -> Fault:
    """Found in the area of streams."""
    module, innocent = "test_streams.py::", "test_current_stream_is_a_context"
    return Fault(("--areas", "streams", "-k", f"{test} or {innocent}"), module + test, message, module + innocent)


_DETERMINED = "test_state.py::test_determinism_where_it_is_asked_for[matmul]"
_INFINITIES, _ENDS = "test_infinities[float32]", "test_ends_of_the_range[int64]"

#: In the cards of ``mutants_trials.py``.
TRIALS: dict[str, Fault] = {
    "stopsatzero": number(
        _INFINITIES,
        "reduce, prod of float32 on stopsatzero: .*, rows of 3: .*: element .2.: expected nan, got 0.0",
        _ENDS,
    ),
    "fromlowest": number(
        _INFINITIES, r"reduce, max of float32 on fromlowest: .*, rows of 3: .* expected -inf, got -3.4\S+e.38", _ENDS
    ),
    "fromword": number(
        _ENDS,
        "reduce, min of int64 on fromword: .*, rows of 3 near the largest and the smallest: element .0.",
        _INFINITIES,
    ),
    "countsinbytes": number(
        "test_counts_of_truth", "reduce, sum of bool on countsinbytes: contiguous, 2 rows of 300: element .0.", _ENDS
    ),
    "byadifference": number(
        _INFINITIES, "scan, sum of float32 on byadifference: .*, rows of 3: .*: expected -inf, got nan", _ENDS
    ),
    "initsdtype": Fault(
        ("--areas", "forms", "-k", "far_strides and scan"),
        "test_forms.py::test_far_strides[scan-uint8]",
        "scan of uint8 on initsdtype: 3 x 3, 64 elements apart: element .1, 2.: expected 279, got 23",
        "test_forms.py::test_far_strides[scan-float32]",
    ),
    "sortsbits": number(
        "test_nan_of_either_sign[float32]",
        "sort of float32, positions on sortsbits: NaN of either sign, contiguous, 160 elements: element .1.",
        _ENDS,
    ),
    "floorcasts": cast(
        "float32-int32", "copy_cast of float32 to int32 on floorcasts: contiguous: element", "int32-float32"
    ),
    "singlecasts": Fault(
        ("--areas", "edges", "-k", "floats_hold"),
        "test_edges.py::test_beyond_what_floats_hold[copy_cast to float64]",
        r"copy_cast to float64 of int64 on singlecasts: beyond 2\^53: element",
        "test_edges.py::test_beyond_what_floats_hold[fill]",
    ),
    "addszero": operand("matmul", "matmul of float32 on addszero: .*, into an output that held NaN: element", "sort"),
    "sortsinplace": operand(
        "sort", "sort of float32 on sortsinplace: .*, an operand that is only read .x.: element", "matmul"
    ),
    "evensources": Fault(
        ("--areas", "slots", "-k", "copies"),
        "test_slots.py::test_slot[copies_from_host]",
        "evensources: copy_from_host: 300 bytes of the host, 1 past a whole address: byte 0 of 300 should be",
        "test_slots.py::test_slot[copies_within]",
    ),
    "packedonce": kept(
        "where it was", "matmul of float32 on packedonce: .*, of other numbers than before, where it was"
    ),
    "firstoffset": kept(
        "elsewhere in its block",
        "gather of float32 on firstoffset: .*, of other numbers than before, elsewhere in its block, turn 1: element",
    ),
    "firstthread": Fault(
        ("--areas", "capabilities", "-k", "first_values"),
        "test_capabilities.py::test_first_values_for_another_thread[pointwise]",
        "pointwise on firstthread: of .*, called by another thread than the first: element .0.: expected 7",
        "test_capabilities.py::test_first_values[pointwise]",
    ),
    "fillselsewhere": ordered(
        "test_uploads_are_ordered", "on fillselsewhere: expected .* everywhere, got .*: the work was not ordered"
    ),
    "forgotten": ordered(
        "test_events_may_go_while_streams_wait",
        "a stream that waits for an event which nobody holds any more on forgotten",
    ),
    # in those of ``mutants_tiles.py``
    "wholetiles": Fault(
        ("--areas", "copies", "-k", "test_layouts"),
        "test_copies.py::test_layouts[shape1-transposed-contiguous]",
        "copy_cast of float32 on wholetiles: 37 x 129, from transposed on wholetiles:0 to contiguous on .*: element",
        "test_copies.py::test_layouts[shape1-contiguous-contiguous]",
    ),
    "wholechunks": Fault(
        ("--areas", "edges", "-k", "test_reductions_of_many or test_ties"),
        "test_edges.py::test_reductions_of_many[float32]",
        "reduce, sum of float32 on wholechunks: dim 0 of 65537 x 2: element",
        "test_edges.py::test_ties[float32]",
    ),
    "numberslast": Fault(
        ("--areas", "capabilities", "-k", "first_values"),
        "test_capabilities.py::test_first_values[pointwise, a number first]",
        "pointwise, a number first on numberslast: of .*: element .0.: expected -1",
        "test_capabilities.py::test_first_values[pointwise, a number last]",
    ),
}
