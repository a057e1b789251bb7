"""The catalogue, continued: quick paths that are right for what they were tried with."""

from __future__ import annotations

from faults import Fault, edge, form
from faults_habits import number

__all__ = ["DILATED", "PATHS"]


def below(kernel: str, message: str) -> Fault:
    """Found by denormal results of normal numbers."""
    other = "pointwise, mul" if kernel != "pointwise, mul" else "reduce, prod"
    return edge(
        f"test_underflow_is_gradual[{kernel}-float32]",
        f"{kernel} of float32 on {message}: normal numbers, denormal results: element .0(, 0)?.: expected",
        innocent=f"test_underflow_is_gradual[{other}-float32]",
    )


def many(message: str) -> Fault:
    """Found by many rows, products and elements."""
    return edge(
        "test_rows_and_batches_of_many[float32]",
        message,
        only="rows_and_batches or test_ties",
        innocent="test_ties[float32]",
    )


#: In the cards of ``mutants_paths.py``.
PATHS: dict[str, Fault] = {
    "thirdstrides": form(
        "test_operands_that_lie_differently[float32]",
        "pointwise, select of float32 on thirdstrides: 7 x 11, contiguous, transposed and stepped: element",
    ),
    "middleonce": form(
        "test_operands_that_repeat[float32]",
        r"pointwise, sub of float32 on middleonce: 3 x 5 x 7, the right one repeated along \(1,\): element",
    ),
    "outputbyoutput": form(
        "test_outputs_that_are_operands",
        r"pointwise of float32 on outputbyoutput: step \d of SGD with momentum, 77 elements, contiguous: element",
    ),
    "squareflags": form(
        "test_square_products[float32]",
        "matmul of float32 on squareflags: 2 x 2 @ 2 x 2, contiguous @ transposed: element .0, 1.: expected",
    ),
    "fewbatches": many("matmul of float32 on fewbatches: 65539 products of 2 x 2 @ 2 x 2, contiguous: element .65535,"),
    "fewscans": many("scan, sum of float32 on fewscans: 65539 rows of 3, contiguous: element .65535, 0.: expected"),
    "fewsorts": many("sort of float32 on fewsorts: 65539 rows of 3, contiguous: element .65535, 0.: expected"),
    "shortplaces": many("sort of float32, positions on shortplaces: 1 row of 70001, contiguous: element"),
    "paddedsort": edge(
        "test_nan[sort-float32]",
        "sort of float32 on paddedsort: 7 elements, NaN in place 0: element .6.: expected nan, got inf",
        only="test_nan and float32",
        innocent="test_nan[reduce, max-float32]",
    ),
    "firstpart": edge(
        "test_reductions_of_many[float32]",
        "reduce, argmin of float32 on firstpart: dim 0 of 65537: expected 65536, got",
        only="test_reductions_of_many or test_ties",
        innocent="test_ties[float16]",
    ),
    "wordsoftruth": Fault(
        ("--areas", "bounds", "-k", "float32"),
        "test_bounds.py::test_required_kernel_keeps_to_its_output[pointwise-float32]",
        r"pointwise of float32 on wordsoftruth: wrote past the end of the output: up to \d bytes",
        "test_bounds.py::test_required_kernel_keeps_to_its_output[reduce-float32]",
    ),
    "underflows": below("pointwise, mul", "underflows"),
    "tinyproducts": below("matmul", "tinyproducts"),
    "tinycasts": below("copy_cast from float64", "tinycasts"),
    "equaldoubles": edge(
        "test_beyond_what_floats_hold[pointwise, eq of two]",
        r"pointwise, eq of two of int64 on equaldoubles: beyond 2.53: element .\d.: expected False, got True",
        innocent="test_beyond_what_floats_hold[fill]",
    ),
    "wordcasts": Fault(
        ("--areas", "copies", "-k", "large_numbers"),
        "test_copies.py::test_casts_of_large_numbers[float32-int64]",
        "copy_cast of float32 to int64 on wordcasts: contiguous: element .0.: expected 4611686018427387904, got",
        "test_copies.py::test_casts_of_large_numbers[float32-int32]",
    ),
    "lowword": edge(
        "test_truth_is_0_or_1[copy_cast, int]",
        "copy_cast, int of bool on lowword: bytes of 12 elements: element .7.: expected 1, got 0",
        innocent="test_truth_is_0_or_1[gather]",
    ),
    "finitefills": edge(
        "test_fills_with_no_numbers[float16]",
        "fill of float16 on finitefills: 1 elements of inf, contiguous: element .0.: expected inf, got 65504",
        innocent="test_fills_with_no_numbers[float32]",
    ),
    "wordsums": number(
        "test_ends_of_the_range[int32]",
        "reduce, sum of int32 on wordsums: contiguous, rows of 3 near the largest and the smallest: element .0.: ",
        "test_ends_of_the_range[int16]",
    ),
    "stale": Fault(
        ("--areas", "services", "-k", "recovered or identity"),
        "test_services.py::test_a_recovered_device_computes",
        r"recover of stale: matmul, used before and after it, gave \[\[0.0, .*: kept from before",
        "test_services.py::test_an_identity_is_one_devices",
    ),
    "pinnedelsewhere": Fault(
        ("--areas", "streams", "-k", "uploads_are_ordered or current_stream"),
        "test_streams.py::test_uploads_are_ordered",
        "a copy from pinned memory to what earlier work of the stream reads on pinnedelsewhere: expected .* everywhere",
        "test_streams.py::test_current_stream_is_a_context",
    ),
    "trimmed": Fault(
        ("--areas", "memory", "-k", "in_use or nothing"),
        "test_memory.py::test_blocks_in_use_stay",
        r"after empty_cache, \d+ allocations: block \d+ \(\d+ bytes\) lost its contents .*: the allocator handed out",
        "test_memory.py::test_nothing_takes_no_memory",
    ),
}

#: In the native card, by the value of SHADOW_FAULT.
DILATED: dict[str, Fault] = {
    "dense groups": Fault(
        ("--areas", "kernels", "-k", "test_kernel and (convolution or cat)"),
        "test_kernels.py::test_kernel[convolution]",
        "convolution of float32 on shadow: groups, dilation 2, contiguous: result 0",
        "test_kernels.py::test_kernel[cat]",
    )
}
