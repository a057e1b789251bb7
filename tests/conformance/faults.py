"""The catalogue: what is planted in which card, what the kit is asked to run, and what it must say."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["NATIVE", "PYTHON", "STREAMS", "Fault"]


@dataclass(frozen=True)
class Fault:
    """What to run, which test must fail, and what the failure must say."""

    arguments: tuple[str, ...]
    test: str
    message: str
    innocent: str = ""  # a test that runs too, and must pass, unless the fault spoils everything
    environment: dict[str, str] = field(default_factory=dict)
    card: str = ""  # where several faults share one


#: In the native card of ``shadow.cpp``, by the value of SHADOW_FAULT.
NATIVE: dict[str, Fault] = {
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
    "reads one element": Fault(
        ("--areas", "reads"),
        "test_reads.py::test_kernel_keeps_to_its_operands[gather]",
        r"gather on shadow: float32, contiguous, 1 elements: reaches outside an operand \(SIGSEGV\)",
        "test_reads.py::test_kernel_keeps_to_its_operands[reduce]",
    ),
    "reads a page": Fault(
        ("--areas", "reads"),
        "test_reads.py::test_kernel_keeps_to_its_operands[reduce]",
        r"reduce on shadow: float32, contiguous, 1 elements: reaches outside an operand \(SIGSEGV\)",
        "test_reads.py::test_kernel_keeps_to_its_operands[gather]",
    ),
    "short workspace": Fault(
        ("--areas", "bounds", "-k", "workspace"),
        "test_bounds.py::test_kernel_keeps_to_its_workspace[sort]",
        r"sort on shadow: .*sort: wrote up to 24 bytes past the workspace of 1000 bytes",
        "test_bounds.py::test_kernel_keeps_to_its_workspace[reduce]",
    ),
    "unsafe when large": Fault(
        ("--areas", "threads", "-k", "many_threads and (reduce or fill)"),
        "test_threads.py::test_large_kernel_in_many_threads[reduce]",
        "reduce of 300 elements on shadow gave wrong values while other threads ran it: it keeps a buffer",
        "test_threads.py::test_kernel_in_many_threads[reduce]",
    ),
    "kept step": Fault(
        ("--areas", "state", "-k", "prepared"),
        "test_state.py::test_prepared_steps_of_many_dtypes[reduce]",
        r"reduce of \w+ on shadow: \d x \d, replayed among recordings of other dtypes and sizes: ",
        "test_state.py::test_prepared_steps_of_many_dtypes[scan]",
    ),
}

STREAMS: dict[str, Fault] = {
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


def edge(test: str, message: str, *, only: str = "", innocent: str = "", **environment: str) -> Fault:
    """Found in the area of edge values."""
    module = "test_edges.py::"
    return Fault(
        ("--areas", "edges", "-k", only or test.partition("[")[0]),
        module + test,
        message,
        innocent and module + innocent,
        environment,
    )


def form(test: str, message: str, innocent: str = "") -> Fault:
    """Found in the area of forms."""
    module = "test_forms.py::"
    return Fault(
        ("--areas", "forms", "-k", test.partition("[")[0]), module + test, message, innocent and module + innocent
    )


def kept(test: str, message: str, innocent: str = "") -> Fault:
    """Found in the area of what is kept."""
    module = "test_state.py::"
    return Fault(
        ("--areas", "state", "-k", test.partition("[")[0]), module + test, message, innocent and module + innocent
    )


def timed(test: str, message: str, innocent: str = "test_current_stream_is_a_context") -> Fault:
    """Found in the area of streams."""
    module = "test_streams.py::"
    return Fault(
        ("--areas", "streams", "-k", f"{test} or {innocent}"), module + test, message, innocent and module + innocent
    )


def hosted(test: str, message: str) -> Fault:
    """Found of memory of the host that is registered."""
    names = {"same": "test_registered_memory_is_the_same", "stays": "test_registered_memory_stays_its_owners"}
    subject = f"host_register on \\w+: {message}"
    module, innocent = "test_memory.py::", "test_nothing_takes_no_memory"
    return Fault(
        ("--areas", "memory", "-k", f"{names[test]} or {innocent}"), module + names[test], subject, module + innocent
    )


def flushing(kernel: str) -> Fault:
    """A kernel that takes denormal numbers for zero."""
    name = {"pointwise": "pointwise, neg", "reduce": "reduce, sum"}.get(kernel, kernel)
    other = "pointwise, neg" if kernel != "pointwise" else "gather"
    subject = f"{name} of float32 on flushes: 17 denormal numbers: "
    fault = edge(f"test_tiny[{name}-float32]", subject, innocent=f"test_tiny[{other}-float32]", FLUSHES=kernel)
    return Fault(fault.arguments, fault.test, fault.message, fault.innocent, fault.environment, "flushes")


_CLOCK = r"elapsed_time\(\) on {} tells {} % of the time that the host waited"

#: In the cards of ``mutants*.py``, made from the reference backend.
PYTHON: dict[str, Fault] = {
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
    ),
    # values
    "tinyresults": edge("test_small_results[exp]", "exp of float32 on tinyresults: .* small results are wrong by"),
    **{f"flushes, {kernel}": flushing(kernel) for kernel in ("copy_cast", "pointwise", "reduce", "scan", "gather")},
    **{f"flushes, {kernel}": flushing(kernel) for kernel in ("scatter", "sort", "matmul")},
    "nanlost": edge(
        "test_nan[gather-float32]",
        "gather of float32 on nanlost: 1 elements, NaN in place 0: element .0.: expected nan, got 0.0",
        innocent="test_nan[reduce, max-float32]",
    ),
    "nanmax": edge(
        "test_nan[reduce, max-float32]",
        "reduce, max of float32 on nanmax: 1 elements, NaN in place 0: expected nan, got 0.0",
        innocent="test_nan[gather-float32]",
    ),
    "nanless": edge(
        "test_nan[pointwise, max-float32]",
        "pointwise, max of float32 on nanless: .*: expected nan, got 0.0",
        innocent="test_nan[gather-float32]",
    ),
    "allbits": edge(
        "test_truth_is_0_or_1[pointwise, lt]",
        "pointwise, lt of bool on allbits: bytes of 12 elements: element .0.: expected 1, got 255",
        innocent="test_truth_is_0_or_1[gather]",
    ),
    "lowbyte": edge(
        "test_truth_is_0_or_1[copy_cast, int]",
        "copy_cast, int of bool on lowbyte: bytes of 12 elements: element .1.: expected 1, got 0",
        innocent="test_truth_is_0_or_1[gather]",
    ),
    "floatfill": edge(
        "test_beyond_what_floats_hold[fill]",
        "fill of int64 on floatfill: beyond 2.53: element .0.: expected 9007199254740993, got 9007199254740992",
        innocent="test_beyond_what_floats_hold[iota]",
    ),
    "floatiota": edge(
        "test_beyond_what_floats_hold[iota]",
        "iota of int64 on floatiota: beyond 2.53: element .0.: expected 9007199254740993, got 9007199254740992",
        innocent="test_beyond_what_floats_hold[fill]",
    ),
    "narrow": edge(
        "test_products[float16]",
        r"matmul of float16 on narrow: 17 x 4096 @ 4096 x 33, contiguous: element .* expected \S+, got ",
        innocent="test_products[float32]",
    ),
    "shortproducts": edge(
        "test_products[float32]",
        r"matmul of float32 on shortproducts: 3 x 2049 @ 2049 x 5, contiguous: element .* expected \S+, got ",
    ),
    "noproducts": edge(
        "test_products_of_nothing[float32]",
        r"matmul of float32 on noproducts: 4 x 0 @ 0 x 6: element .0, 0.: expected 0.0, got 7.0",
        only="test_products_of_nothing or test_ties",
        innocent="test_ties[float32]",
    ),
    "counter16": edge(
        "test_reductions_of_many[float32]",
        "reduce, sum of float32 on counter16: dim 0 of 65537: expected ",
        only="test_reductions_of_many or test_ties",
        innocent="test_ties[float32]",
    ),
    "counter24": edge(
        "test_reductions_of_millions",
        "reduce, sum of uint8 on counter24: 16777219 elements: expected 16777223, got 16777216",
        only="test_reductions_of",
        innocent="test_reductions_of_many[float32]",
    ),
    "fewrows": edge(
        "test_reductions_of_many[float32]",
        r"reduce, sum of float32 on fewrows: dim \d of [\dx ]+: element .65535.: expected",
    ),
    "nocarry": edge(
        "test_scans_carry[float32]",
        r"scan, sum of float32 on nocarry: 3 rows of 1025: element .0, 1024.: expected",
    ),
    "lastwins": edge("test_ties[float32]", "reduce, argmax of float32 on lastwins: rows of 1025 equal elements: "),
    "swapped": edge("test_ties[float32]", "sort of float32, positions on swapped: rows of 1025 equal elements: "),
    # forms
    "oddfar": form(
        "test_far_strides[copy_cast-float32]",
        r"copy_cast of float32 on oddfar: 3 x \d, 64 elements apart\S*( transposed)?: element .0, 2.: expected",
        "test_far_strides[sort-float32]",
    ),
    "fourdims": form(
        "test_five_dims_that_do_not_merge[pointwise-float32]",
        "pointwise of float32 on fourdims: five dims with gaps: element",
        "test_five_dims_that_do_not_merge[scan-float32]",
    ),
    "wideindex": form(
        "test_indices_of_either_size[index_select-int32]",
        "index_select with int32 positions on wideindex: 1 apart: element",
        "test_indices_of_either_size[index_select-int64]",
    ),
    "duplicates": form(
        "test_duplicates[float32]", "scatter, add of float32 on duplicates: 20000 elements in 7 places: element .0.:"
    ),
    "nearoffset": form(
        "test_far_offsets", r"pointwise of uint8 on nearoffset: 2\^31 bytes and more into their block: element"
    ),
    # memory
    "misaligned": Fault(
        ("--areas", "slots,memory", "-k", "aligned or alignment or nothing"),
        "test_slots.py::test_slot[blocks_are_aligned]",
        "misaligned: alloc: a block of 1 bytes begins at 0x[0-9a-f]+4, expected a multiple of 16 bytes",
        "test_memory.py::test_nothing_takes_no_memory",
    ),
    "longcopies": Fault(
        ("--areas", "slots", "-k", "copies"),
        "test_slots.py::test_slot[copies_within]",
        r"longcopies: copy_within: 1048579 bytes, between blocks: byte \d+ of",
        "test_slots.py::test_slot[copies_from_host]",
    ),
    "longuploads": Fault(
        ("--areas", "slots", "-k", "copies"),
        "test_slots.py::test_slot[copies_from_host]",
        r"longuploads: copy_from_host: 1048579 bytes to 0: byte \d+ of",
    ),
    "evencopies": Fault(
        ("--areas", "slots", "-k", "copies"),
        "test_slots.py::test_slot[copies_to_host]",
        r"evencopies: copy_to_host: 1 bytes from 13: byte 0 of 1 should be",
        "test_slots.py::test_slot[copies_within]",
    ),
    "snapshot": hosted("same", r"from bytes 0 to 69981 of registered memory: byte \d+ of 69981 is \d+, expected"),
    "frombegin": hosted("same", r"from bytes 101 to 40000 of registered memory: byte \d+ of 39899 is"),
    "wiping": hosted("stays", r"after host_unregister: the memory of its owner: byte 0 of 69981 is 255, expected"),
    # what is kept
    "byid": kept(
        "test_programs_of_many_dtypes[add]",
        "pointwise, add of float64 on byid: contiguous, after the same program of float32, of one element: element",
    ),
    "bysizes": kept(
        "test_kernels_of_many_dtypes", r"reduce, \w+ of float64 on bysizes: 6 x 10, after float64, 6 x 10: "
    ),
    "byop": kept("test_kernels_of_many_dtypes", "sort, descending of float32 on byop: 6 x 10, after float32, 6 x 10: "),
    "anyorder": kept(
        "test_determinism_where_it_is_asked_for[scatter, add]",
        r"scatter, add of float32 on anyorder: 20000 elements: run \d+ differs from the first, where determinism was",
        "test_determinism_where_it_is_asked_for[matmul]",
    ),
    "counter32": Fault(
        ("--areas", "random", "-k", "wide or continue"),
        "test_random.py::test_counters_are_wide[33]",
        r"random_bits for float32 on counter32, from word 2\^33 - 8 on: element \d+ of 37 is .* fewer than 64 bits",
        "test_random.py::test_counters_are_wide[31]",
    ),
    "blocks32": Fault(
        ("--areas", "random", "-k", "wide or continue"),
        "test_random.py::test_counters_are_wide[35]",
        r"random_bits for float32 on blocks32, from word 2\^35 - 8 on: element \d+ of 37 is .* fewer than 64 bits",
        "test_random.py::test_counters_are_wide[33]",
    ),
    # time
    "slowclock": timed("test_elapsed_time_is_the_devices", _CLOCK.format("slowclock", r"[678]\d\S*")),
    "fastclock": timed("test_elapsed_time_is_the_devices", _CLOCK.format("fastclock", r"1\d\d")),
    "microseconds": timed("test_elapsed_time_is_the_devices", _CLOCK.format("microseconds", r"\S+e\+0[45]")),
    "seconds": timed("test_elapsed_time_is_the_devices", _CLOCK.format("seconds", r"0.\d+")),
    "hasty": timed(
        "test_query_tells_what_is_done", r"query\(\) of an event on hasty was true after \S+ ms, and the work before it"
    ),
    "onewait": timed(
        "test_synchronize_waits_for_all_streams",
        r"synchronize\(\) of the device on onewait",
    ),
    "hurried": timed("test_uploads_are_ordered", r"a copy from the host.* on hurried: expected \S+ everywhere, got"),
    "eager": timed(
        "test_downloads_are_ordered", "a copy to pinned memory, after the synchronize.. of its stream on eager"
    ),
    "delayed": timed(
        "test_uploads_are_ordered", r"a copy from pinned memory.* on delayed: expected \S+ everywhere, got"
    ),
    "elsewhere": timed(
        "test_recordings_replay_where_they_are_asked_to", "a recording replayed on a stream on elsewhere"
    ),
    "peers": Fault(
        ("--areas", "copies", "-k", "between or broadcast"),
        "test_copies.py::test_between_all_devices",
        r"from peers:1, offset by 101 elements, to peers, offset by 13: byte 0 of \d+ is \d+, expected \d+",
        "test_copies.py::test_broadcast",
    ),
}
