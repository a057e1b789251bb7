"""The catalogue, continued: what is right for the first numbers and forms, and what cards have of their own."""

from __future__ import annotations

from faults import Fault

__all__ = ["HABITS", "OWN"]


def number(test: str, message: str, innocent: str = "test_powers_of_integers") -> Fault:
    """Found in the area of numbers."""
    module = "test_numbers.py::"
    wanted = " or ".join(name.partition("[")[0] for name in (test, innocent))
    return Fault(("--areas", "numbers", "-k", wanted), module + test, message, module + innocent)


def valued(test: str, message: str, only: str, innocent: str = "") -> Fault:
    """Found by the values of a required operator."""
    module = "test_operators.py::"
    return Fault(("--areas", "required", "-k", only), module + test, message, innocent and module + innocent)


def own(kernel: str, message: str, innocent: str = "cat") -> Fault:
    """Found in the area of kernels, for one that the card has beside the required ones."""
    test = f"test_kernels.py::test_kernel[{kernel}]"
    name = f"test_kernel and ({kernel} or {innocent})"
    return Fault(
        ("--areas", "kernels", "-k", name),
        test,
        f"{kernel} of float32 on shadow: {message}",
        f"test_kernels.py::test_kernel[{innocent}]",
    )


_WRITTEN = "test_products_into_any_place[float32]"

#: In the cards of ``mutants_habits.py``.
HABITS: dict[str, Fault] = {
    "powbylogs": number(
        "test_powers[float32]",
        r"pointwise, pow of float32 on powbylogs: bases of either sign, whole exponents, .*expected -8.0, got nan",
    ),
    "halfaway": valued(
        "test_special_values[round-float32]",
        r"round of special values, float32 on halfaway: element .4.: expected 0.0, got 1.0",
        "test_special_values and (round or floor) and float32",
        "test_special_values[floor-float32]",
    ),
    "shortangles": valued(
        "test_special_values[sin-float32]",
        "sin of special values, float32 on shortangles: element .11.: expected 0.9546",
        "test_special_values and (sin or floor) and float32",
        "test_special_values[floor-float32]",
    ),
    "expflush": valued(
        "test_special_values[exp-float32]",
        r"exp of special values, float32 on expflush: element .14.: expected 6.05\S+e-39, got 0.0",
        "test_special_values and (exp or floor) and float32",
        "test_special_values[floor-float32]",
    ),
    "tenbits": valued(
        "test_values[mm-float32]", "mm of float32 on tenbits: wrong values", "test_values and (mm or sum) and float32"
    ),
    "firstbatch": valued(
        "test_values[bmm-float32]",
        "bmm of float32 on firstbatch: wrong for expanded input but right for contiguous: .* strides of zero",
        "test_values and (bmm or sum) and float32",
        "test_values[sum-float32]",
    ),
    "firstaddend": valued(
        "test_values[addmm-float32]",
        "addmm of float32 on firstaddend: wrong for expanded input but right for contiguous",
        "test_values and (addmm or sum) and float32",
        "test_values[sum-float32]",
    ),
    "firststrides": valued(
        "test_values[sum-float32]",
        "sum of float32 on firststrides: wrong for stepped input but right for contiguous: .* the strides it is given",
        "test_values and (sum or amax) and float32",
        "test_values[amax-float32]",
    ),
    "denseindex": valued(
        "test_values[index_select-float32]",
        "index_select of float32 on denseindex: wrong values",
        "test_values and (index_select or sum) and float32",
        "test_values[sum-float32]",
    ),
    "firstsource": valued(
        "test_values[scatter.src-float32]",
        "scatter.src of float32 on firstsource: wrong for expanded input but right for contiguous: .* strides of zero",
        "test_values and (scatter or sum) and float32",
        "test_values[sum-float32]",
    ),
    "fillsplus": valued(
        "test_sign_of_zero[full-float32]",
        "full of float32 minus zeros on fillsplus: expected -0.0, got the other",
        "test_sign_of_zero and float32",
    ),
    "skipszeros": number(
        "test_products_of_what_is_no_number[float32]",
        r"matmul of float32 on skipszeros: 3 x 5 @ 5 x 4 with NaN and infinity, contiguous: .*expected nan, got 0.0",
    ),
    "topbit": number(
        "test_casts_of_unsigned[float32]",
        r"copy_cast of uint64 to float32 on topbit: contiguous, 5 elements: element .0.: expected 9.2\S+e.18, got -9.2",
    ),
    "nanfalse": Fault(
        ("--areas", "edges", "-k", "truth_is_0"),
        "test_edges.py::test_truth_is_0_or_1[copy_cast]",
        "copy_cast of bool on nanfalse: bytes of 12 elements: element .6.: expected 1, got 0",
        "test_edges.py::test_truth_is_0_or_1[gather]",
    ),
    "nanany": Fault(
        ("--areas", "edges", "-k", "truth_is_0"),
        "test_edges.py::test_truth_is_0_or_1[reduce, all]",
        "reduce, all of bool on nanany: bytes of 12 elements: element .1.: expected 1, got 0",
        "test_edges.py::test_truth_is_0_or_1[gather]",
    ),
    "bigplaces": number(
        "test_order_of_large_integers", r"reduce, argmax of int64 on bigplaces: neighbours beyond 2\^53, contiguous"
    ),
    "bigorder": number(
        "test_order_of_large_integers",
        r"sort of int64, positions on bigorder: neighbours beyond 2\^53, contiguous, 8 elements: element",
    ),
    "radixzeros": number(
        "test_zeros_keep_their_order[float32]",
        "sort of float32, positions on radixzeros: zeros of both signs, contiguous, 130 elements: element .1.: ",
    ),
    "addedup": number(
        "test_steps_do_not_add_up",
        "iota of float32 on addedup: 100000 elements, 0.1 apart: element .18.: expected 1.79",
    ),
    "halfpartials": number(
        "test_sums_in_stages[float16]",
        "reduce, sum of float16 on halfpartials: 2 rows of 2401 that cancel, contiguous: element .0.: expected 1.0",
        "test_sums_in_stages[bfloat16]",
    ),
    "denseproduct": number(
        _WRITTEN, "matmul of float32 on denseproduct: 9 x 17 @ 17 x 12, output transposed: element .0, 1.: "
    ),
    "rowforcolumn": number(
        "test_products_with_any_addend[float32]", "matmul of float32 on rowforcolumn: 8 x 8, and a column: element"
    ),
    "firstdim": Fault(
        ("--areas", "state", "-k", "kernels_of_many"),
        "test_state.py::test_kernels_of_many_dtypes",
        "gather, rows of float32 on firstdim: 6 x 10, after float32, 6 x 10: element",
    ),
    "compilerace": Fault(
        ("--areas", "threads", "-k", "first_use or handing"),
        "test_threads.py::test_first_use_from_many_threads",
        "compilerace, first used by 8 threads at once .*no program",
    ),
    "firstrecord": Fault(
        ("--areas", "streams", "-k", "again or context"),
        "test_streams.py::test_events_are_recorded_again",
        r"a stream that waited for an event recorded a second time on firstrecord: expected \S+ everywhere",
        "test_streams.py::test_current_stream_is_a_context",
    ),
    "laterrecord": Fault(
        ("--areas", "streams", "-k", "record_before_it or context"),
        "test_streams.py::test_a_wait_is_for_the_record_before_it",
        r"wait_event\(\) on laterrecord: a stream that waited for an event waits for ever once the event is recorded",
        "test_streams.py::test_current_stream_is_a_context",
    ),
    "leftout": Fault(
        ("--areas", "slots"),
        "test_slots.py::test_slot[captures_keep_copies]",
        "leftout: capture: copy_within of 7 bytes between begin and end is not done by replay 1: it was left out",
        "test_slots.py::test_slot[copies_within]",
    ),
    "copiesatonce": Fault(
        ("--areas", "slots"),
        "test_slots.py::test_slot[captures_keep_copies]",
        "copiesatonce: capture: copy_within of 7 bytes between begin and end is done at once, beside the recording",
        "test_slots.py::test_slot[copies_within]",
    ),
    "onceonly": Fault(
        ("--areas", "state", "-k", "prepared"),
        "test_state.py::test_prepared_steps_of_many_dtypes[pointwise]",
        "pointwise of float32 on onceonly: 4 x 6, replayed among recordings of other dtypes and sizes: element",
    ),
    "firstpiece": Fault(
        ("--areas", "ranks", "-k", "many_elements or messages"),
        "test_ranks.py::test_many_elements[all_reduce]",
        "all_reduce of float32, 262147 elements, on firstpiece: rank 0, element 16384 of 262147: expected",
        "test_ranks.py::test_messages",
    ),
    "lostnan": Fault(
        ("--areas", "ranks", "-k", "extremes or messages"),
        "test_ranks.py::test_extremes_of_nan[max]",
        "all_reduce, max of float32 on lostnan: rank 0: NaN of rank 0 is lost",
        "test_ranks.py::test_messages",
    ),
}

_GRADIENTS = "gradients, contiguous: result"

#: In the native card, by the value of SHADOW_FAULT: kernels that are not required.
OWN: dict[str, Fault] = {
    "ignores 0 of grid_sample": own("grid_sample", "nearest, border, corners apart, contiguous: result 0, element"),
    "ignores 1 of grid_sample": own("grid_sample", "bilinear, reflection, corners aligned, contiguous: result 0"),
    "ignores 2 of grid_sample": own("grid_sample", "bilinear, reflection, corners aligned, contiguous: result 0"),
    "halves grid_sample_backward": own("grid_sample_backward", f"bilinear, zeros, corners apart, {_GRADIENTS}"),
    "no tail of pdist": own("pdist", r"p = 0, 19 rows of 6, contiguous: result 0, element .168.: expected"),
    "no tail of cdist": own("cdist", r"p = 0, 7 and 19 rows of 5, contiguous: result 0, element .6, 18.: expected"),
    "halves cdist_backward": own("cdist_backward", f"p = 1, 7 and 19 rows of 5, {_GRADIENTS}"),
    "halves pdist_backward": own("pdist_backward", f"p = 1, 19 rows of 6, {_GRADIENTS}"),
    "ignores 0 of ctc_loss": own("ctc_loss", "another blank, mean, none infinite, contiguous: result 0"),
    "no tail of ctc_loss": own("ctc_loss", "5 of 30 steps, contiguous: result 0, element .4.: expected"),
    "halves ctc_loss_backward": own("ctc_loss_backward", f"5 of 30 steps, {_GRADIENTS}"),
    "ignores 0 of tril": own("tril", "below, contiguous: result 0, element .0, 0, 0.: expected 0.0", "topk"),
    "no tail of randint_fill": own("randint_fill", "1,027 of them, contiguous: result 0, element .1024.: expected"),
    "no tail of adam_step_": own("adam_step_", "three steps, contiguous: result 0, element .32, 4.: expected"),
    "no tail of csr_mm": own("csr_mm", "9 x 130 by 130 x 21, an empty row, contiguous: result 0, element .8, 20."),
    "ignores 1 of embedding_backward": own("embedding_backward", f"rows that repeat, {_GRADIENTS}"),
    "halves avg_pool2d_backward": own("avg_pool2d_backward", f"3 x 2, stride 2, {_GRADIENTS}"),
    "no tail of searchsorted": own("searchsorted", "left of equals, contiguous: result 0, element .4, 40.: expected"),
}
