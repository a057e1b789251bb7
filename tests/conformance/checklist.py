"""What vendors do wrong, by kind, and the names under which it is planted: in the catalogue, or as a test elsewhere.

Read by ``test_checklist.py``: every name is planted, and everything that is planted stands here.
"""

from __future__ import annotations

__all__ = ["CHECKLIST"]

_KERNELS = ("copy_cast", "pointwise", "reduce", "scan", "gather", "scatter", "sort", "matmul")

CHECKLIST: dict[str, dict[str, tuple[str, ...]]] = {
    "values": {
        "tiny results": ("tinyresults",),
        "denormal numbers flushed by one kernel": tuple(f"flushes, {kernel}" for kernel in _KERNELS),
        "denormal numbers flushed by the processor from then on": ("denormal",),
        "NaN lost in gather, maxima and minima": ("nanlost", "nanmax", "nanless"),
        "signs of zero": ("unsigned",),
        "signs of zero lost by maxima": ("pluszero",),
        "NaN as the place of an extreme, and where it is sorted": ("nonanplace", "nanfirst"),
        "bytes of bools other than 0 and 1": ("allbits", "lowbyte"),
        "such bytes taken for false": ("byteofone",),
        "sums of float16 kept in float16": ("halfsums",),
        "casts that cut, or stop at the largest number": ("saturates", "largesthalf", "cutbfloat"),
        "integers of 64 bits by way of float64": ("bydoubles",),
        "steps below zero": ("stepsup",),
        "fill and iota beyond 2^53": ("floatfill", "floatiota"),
        "float16 added up in float16 by products": ("narrow",),
        "products of K = 2,049 and of K = 0": ("shortproducts", "noproducts"),
        "reductions beyond 2^16 elements, 2^16 rows, 2^24 elements": ("counter16", "fewrows", "counter24"),
        "carries of scans across blocks": ("nocarry",),
        "ties among more than 1,000 equal elements, by argmax and sort": ("lastwins", "swapped"),
        "unsigned integers taken for signed ones": ("signed",),
        "what follows the last full block, or millions": ("dropped tail", "large"),
        "gradients": ("wrong gradient", "gradient"),
        "powers by logarithms, halves away from zero, short angles": ("powbylogs", "halfaway", "shortangles"),
        "exponentials that are denormal": ("expflush",),
        "products that leave zeros out, of ten bits": ("skipszeros", "tenbits"),
        "uint64 made floats as if it had a sign": ("topbit",),
        "NaN taken for false": ("nanfalse", "nanany"),
        "places and order of integers that doubles do not tell apart": ("bigplaces", "bigorder"),
        "zeros of both signs sorted by their bits": ("radixzeros",),
        "steps that add up their errors": ("addedup",),
        "zeros that lose their sign when memory is filled": ("fillsplus",),
        "formulas that overflow: quotients of exponentials, squares": ("overflows", "quotients", "squares"),
        "formulas that leave no digits: one less what is close to one": ("erfless",),
        "equal by difference, chosen by arithmetic, NaN left out by maxima": ("differs", "blends", "fmaximum"),
        "remainders, quotients and signs of negative numbers": ("fmodmod", "truncdiv", "nosignbit"),
        "shifts by part of the count, and without the sign": ("wordshift", "logicalshift"),
        "unsigned bytes sorted, and reduced, as signed ones": ("signedorder", "signedmax"),
        "integers multiplied as doubles, added up in 32 bits": ("doubleproducts", "wrapsums"),
        "descending as ascending from its end": ("reversedorder",),
        "sums in stages kept in float16 between them": ("halfpartials",),
    },
    "forms": {
        "strides and their signs": ("ignored strides", "ignored signs", "strides"),
        "strides of 64 and more with an odd count": ("oddfar",),
        "five dims that cannot merge": ("fourdims",),
        "indices of int32": ("wideindex",),
        "offsets beyond 2^31 bytes": ("nearoffset",),
        "duplicates in scatter": ("duplicates",),
        "duplicates in scatter of extremes": ("lostmax",),
        "indices of more than 32 bits, and out of range": ("index32", "clamps"),
        "outputs with gaps": ("denseout",),
        "offsets of a sub-buffer": ("subbuffer",),
        "operands that repeat: index, source, batches": ("denseindex", "firstsource", "firstbatch"),
        "products into columns and between gaps": ("denseproduct",),
        "columns added to products": ("rowforcolumn",),
    },
    "memory": {
        "reads of one element past an input": ("reads one element",),
        "reads of one page past an input": ("reads a page",),
        "writes of one element past an output": (
            "tests/conformance/test_planted_faults.py::test_one_element_too_many_is_found",
        ),
        "misaligned blocks": ("misaligned",),
        "blocks that overlap": ("overlapping blocks", "allocator"),
        "memory that never goes back": ("leaky",),
        "memory freed while the stream uses it": ("atonce",),
        "less workspace than promised": ("short workspace",),
        "copies of a megabyte and more": ("longcopies", "longuploads"),
        "copies to the host in whole words": ("wholewords",),
        "copies at odd offsets": ("evencopies", "careless copies", "careless"),
        "sources that are read when they are gone": ("late source", "late"),
        "registered memory of the host: a copy of it, its beginning, its owner's": ("snapshot", "frombegin", "wiping"),
    },
    "time": {
        "events 20 % off": ("slowclock", "fastclock"),
        "events in other units": ("microseconds", "seconds"),
        "events that tell the host's time": (
            "tests/conformance/test_planted_faults.py::test_times_of_the_host_are_found",
        ),
        "query true while busy": ("hasty",),
        "waits that see one stream of three": ("onewait",),
        "events recorded on another stream": ("otherstream",),
        "events recorded a second time": ("firstrecord",),
        "waits that look at a later record": ("laterrecord",),
        "errors that no wait tells": ("silent",),
        "waits and reads that are not ordered": ("unordered stream", "reads too early"),
        "uploads that are not ordered": ("hurried",),
        "pinned memory used too early": ("eager", "delayed"),
        "peer copies at an offset": ("peers",),
    },
    "threads": {
        "kernels that overlap": ("static", "steps"),
        "unsafe only when large": ("unsafe when large",),
        "first used by many at once": ("lazy",),
        "wrong now and then": ("unsteady",),
        "compiled by one thread, used by another": ("compilerace",),
    },
    "state": {
        "programs told apart by id alone": ("byid",),
        "plans kept across dtypes, sizes and parameters": ("bysizes", "byop"),
        "prepared steps kept across dtypes": ("kept step",),
        "the second of two same calls": ("uncleaned",),
        "strides, dims and addends of the first call": ("firststrides", "firstdim", "firstaddend"),
        "recordings that are used up": ("onceonly",),
        "copies left out of captures, or done at once beside them": ("leftout", "copiesatonce"),
        "numbers and constants that are compiled in": ("bakednumbers", "bakedconstants"),
        "random numbers drawn twice": ("restarts",),
        "captures that replay on another stream": ("elsewhere",),
        "Philox counters at 2^32": ("counter32", "blocks32", "late random bits"),
        "non-determinism where determinism was asked for": ("anyorder",),
    },
    "communicators": {
        "wrong for bool": ("truthisone",),
        "wrong for averages": ("undivided", "wholeaverages"),
        "wrong for uneven parts": ("even", "wordparts"),
        "wrong when a rank is late": ("hastysums", "hastyparts", "unmet"),
        "out of the order of their stream: before, beside, or on another": (
            *("beforestream", "besidestream", "livesources", "defaultstream"),
        ),
        "wrong roots, places and large integers": ("fixed", "unplaced", "scattersfirst", "throughdoubles"),
        "more than one piece": ("firstpiece",),
        "NaN lost by maxima and minima of ranks": ("lostnan",),
    },
    "kernels that are not required": {
        "parameters that are taken for their defaults": (
            *(f"ignores {k} of grid_sample" for k in range(3)),
            *("ignores 0 of ctc_loss", "ignores 0 of tril", "ignores 1 of embedding_backward"),
        ),
        "what follows the last whole vector": tuple(
            f"no tail of {name}"
            for name in ("pdist", "cdist", "ctc_loss", "randint_fill", "adam_step_", "csr_mm", "searchsorted")
        ),
        "gradients of half their size": tuple(
            f"halves {name}_backward" for name in ("grid_sample", "cdist", "pdist", "ctc_loss", "avg_pool2d")
        ),
        "kernels that no test of the kit calls": (
            "tests/conformance/test_kernels_are_tried.py::test_every_kernel_that_the_core_asks_for_has_calls",
        ),
    },
    "services": {
        "profiles": (
            "twicetold",
            "microtimes",
            "backwards",
            "nonumbers",
            "strangers",
            "always",
            "shortranges",
            "elements",
        ),
        "identity and links": ("anybody", "oneforall", "boaster"),
        "memory shared between processes": ("copying", "cutting", "believing"),
        "recovery": ("unrecovered",),
    },
    "claims": {
        "kernels under names that nothing asks for": ("misspelt",),
        "dtypes that a kernel declines": ("boasting",),
        "blocks larger than there are": (
            "tests/conformance/test_planted_faults.py::test_limits_that_are_declared_but_not_kept_are_found",
        ),
        "complex without copies, names without an end, unknown bits, streams without destroy": (
            "tests/abi/test_plugins.py::test_tables_that_cannot_be_are_refused",
            "tests/abi/test_plugins.py::test_devices_that_cannot_be_are_refused",
            "tests/abi/test_plugins.py::test_kernels_that_cannot_be_are_refused",
        ),
        "a fault of another card is not this one's": (
            "tests/conformance/test_planted_faults.py::test_a_fault_of_another_card_is_not_this_ones",
        ),
        "crashes and hangs": ("crash", "hang"),
    },
}
