"""What is planted in communicators: wrong for truth values, averages, uneven parts, a rank that is late, and places."""

from __future__ import annotations

from faults import Fault

__all__ = ["RANKS"]


def joined(test: str, message: str, innocent: str = "") -> Fault:
    """Found in the area of ranks."""
    module = "test_ranks.py::"
    wanted = " or ".join(name.partition("[")[0] for name in (test, innocent) if name)
    return Fault(("--areas", "ranks", "-k", f"({wanted})"), module + test, message, innocent and module + innocent)


_PLACES, _MESSAGES = "test_places_in_memory", "test_messages"
_ORDER = "test_collectives_keep_to_their_stream"
_EXACT = "test_whole_numbers_stay_exact"

#: In the cards of ``mutants_ranks.py``.
RANKS: dict[str, Fault] = {
    "truthisone": joined(
        "test_reductions[sum-bool]",
        r"all_reduce, sum of bool on truthisone: rank 0, element \d+ of 1000: expected 1, got 2",
        "test_reductions[max-bool]",
    ),
    "undivided": joined(
        "test_reductions[average-float32]",
        r"all_reduce, average of float32 on undivided: rank 0, element \d+ of 1000: expected",
        "test_reductions[sum-float32]",
    ),
    "wholeaverages": joined(
        "test_reductions[average-int32]",
        "all_reduce, average of int32 on wholeaverages: has no meaning; the core asks elsewhere where it is declined",
        "test_reductions[average-float32]",
    ),
    "throughdoubles": joined(
        "test_whole_numbers_stay_exact",
        r"all_reduce, sum of int64 beyond 2\^53 on throughdoubles: rank 0, element \d of 2: expected",
        "test_reductions[sum-int64]",
    ),
    "even": joined("test_uneven_parts[2]", "all_gather of uneven parts of float32 on even: rank 0, element ", _EXACT),
    "fixed": joined("test_moves[float32]", "broadcast of float32 from rank 1 on fixed: rank 0, element ", _MESSAGES),
    "hastysums": joined(
        "test_a_rank_that_is_late[first]",
        r"all_reduce with rank 0 0.2 s late on hastysums: rank 1, element 0 of 1000: expected 3.0, got 2.0",
        _MESSAGES,
    ),
    "unplaced": joined(_PLACES, "all_reduce between offsets on unplaced: rank 0, element ", _MESSAGES),
    "scattersfirst": joined(_PLACES, "scatter between offsets on scattersfirst: rank 0, element 0 of ", _MESSAGES),
    "hastyparts": joined(
        "test_a_rank_that_is_late[first]",
        "reduce_scatter with rank 0 0.2 s late on hastyparts: rank 1, element 0 of 500: expected 3.0, got ",
        _MESSAGES,
    ),
    "wordparts": joined(
        "test_uneven_parts[2]", "all_gather of uneven parts of float64 on wordparts: rank 0, element ", _EXACT
    ),
    "beforestream": joined(
        f"{_ORDER}[default]",
        "all_reduce on the default stream on beforestream, .*: does not wait for what the stream was given before: ",
    ),
    "besidestream": joined(
        f"{_ORDER}[default]",
        "all_reduce on the default stream on besidestream, .*: what the stream is given next does not wait for it: ",
        _MESSAGES,
    ),
    "livesources": joined(
        f"{_ORDER}[default]",
        r"\w+ on the default stream on livesources, .*: reads its source when the stream has gone on: rank ",
        _MESSAGES,
    ),
    "defaultstream": joined(
        f"{_ORDER}[own]",
        r"\w+ on a stream of its own on defaultstream, without a wait of the host: .*: rank \d, element",
        f"{_ORDER}[default]",
    ),
    "unmet": joined("test_barriers", r"barrier on unmet: rank 0 left 0\.\d+ s before all came", _PLACES),
}
