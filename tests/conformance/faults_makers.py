"""The catalogue, continued: formulas of their own, numbers that travel as others, and what is compiled in."""

from __future__ import annotations

from faults import Fault
from faults_habits import number

__all__ = ["MAKERS"]


def special(operator: str, message: str) -> Fault:
    """Found by special values of a required operator."""
    module, test = "test_operators.py::", f"test_special_values[{operator}-float32]"
    return Fault(
        ("--areas", "required", "-k", f"test_special_values and ({operator} or floor) and float32"),
        module + test,
        f"{operator} of special values, float32 on {message}",
        "" if operator == "floor_divide" else f"{module}test_special_values[floor-float32]",
    )


def large(name: str, message: str) -> Fault:
    """Found where integers pass what floats hold."""
    module, innocent = "test_edges.py::", "test_beyond_what_floats_hold[fill]"
    return Fault(
        ("--areas", "edges", "-k", "floats_hold"),
        f"{module}test_beyond_what_floats_hold[{name}]",
        rf"{name} of int64 on {message}",
        module + innocent,
    )


def state(test: str, message: str) -> Fault:
    """Found by what comes before a call."""
    innocent = "test_determinism_where_it_is_asked_for[matmul]"
    return Fault(
        ("--areas", "state", "-k", f"{test.partition('[')[0]} or determinism"),
        f"test_state.py::{test}",
        message,
        f"test_state.py::{innocent}",
    )


_RANGE = "test_order_of_the_whole_range[uint8]"

#: In the cards of ``mutants_makers.py``.
MAKERS: dict[str, Fault] = {
    "wordshift": number(
        "test_shifts[int64]",
        r"pointwise, shl of int64 on wordshift: 96 elements, counts up to 70, contiguous: element .\d+.: expected",
    ),
    "logicalshift": number(
        "test_shifts[int32]",
        r"pointwise, shr of int32 on logicalshift: 96 elements, counts up to 70, contiguous: element .49.: expected -1",
    ),
    "erfless": number(
        "test_tails[float32-erfc]",
        r"pointwise, erfc of float32 on erfless: its tails, 6 elements: element .1.: expected 2.2\S+e-05, got",
    ),
    "signedorder": number(_RANGE, "sort of uint8 on signedorder: numbers of the whole range, contiguous, 9 elements"),
    "signedmax": number(_RANGE, "reduce, max of uint8 on signedmax: numbers of the whole range, contiguous, 9 elem"),
    "doubleproducts": large("matmul", r"doubleproducts: beyond 2\^53: element"),
    "bakedconstants": state(
        "test_programs_of_other_constants",
        "pointwise, rad2deg of float32 on bakedconstants: 6 x 10, contiguous, among programs that differ by a constant",
    ),
    "bakednumbers": state(
        "test_programs_of_many_dtypes[add another number]",
        "pointwise, add another number of float32 on bakednumbers: contiguous, after the same program of nothing: ",
    ),
    "wholewords": Fault(
        ("--areas", "slots"),
        "test_slots.py::test_slot[copies_to_host]",
        "wholewords: .*copy_to_host: wrote up to 3 bytes past the 1 bytes asked for",
        "test_slots.py::test_slot[memory_goes_back]",
    ),
    "overflows": special("sigmoid", "overflows: element .6.: expected 1.0, got nan"),
    "quotients": special("tanh", "quotients: element .6.: expected 1.0, got nan"),
    "differs": special("eq", "differs: element .6, 6.: expected True, got False"),
    "squares": special("hypot", r"squares: element .0, 9.: expected 1.0\S+e-30, got 0.0"),
    "fmaximum": special("maximum", "fmaximum: element .0, 8.: expected nan, got 0.0"),
    "nosignbit": special("copysign", "nosignbit: element .2, 1.: expected -1.0, got 1.0"),
    "fmodmod": special("remainder", "fmodmod: element .2, 5.: expected -1.5, got 1.0"),
    "truncdiv": special("floor_divide", "truncdiv: element .2, 5.: expected -1.0, got -0.0"),
    "blends": Fault(
        ("--areas", "required", "-k", "test_sign_of_zero and (where or amax)"),
        "test_operators.py::test_sign_of_zero[where-float32]",
        "where of float32 minus zeros on blends: expected -0.0, got the other",
        "test_operators.py::test_sign_of_zero[amax-float32]",
    ),
    "reversedorder": Fault(
        ("--areas", "edges", "-k", "test_ties or floats_hold"),
        "test_edges.py::test_ties[float32]",
        "sort, descending of float32, positions on reversedorder: rows of 2 equal elements",
        "test_edges.py::test_beyond_what_floats_hold[sort]",
    ),
    "wrapsums": large("reduce, sum", r"wrapsums: beyond 2\^53: expected 9007199254740995, got 3"),
}
