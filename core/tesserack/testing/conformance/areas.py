"""What the kit checks, as data: areas, the level that each belongs to, and the operators that test the required set."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AREAS", "LEVELS", "REQUIRED", "Area", "areas_up_to", "entry_point"]

LEVELS: dict[str, str] = {
    "boots": "computes: the required kernels, copies, views and memory are right",
    "trains": "learns: gradients, writing in place and random numbers are right, and networks converge",
    "complete": "everything, with no expected failures but for what the device declares to lack",
}


@dataclass(frozen=True)
class Area:
    """A group of tests, with the lowest level that needs all of them to pass."""

    name: str
    level: str
    title: str
    module: str


AREAS: dict[str, Area] = {
    area.name: area
    for area in (
        # In this order: what goes wrong first is told first, and a fault of memory as one.
        Area("capabilities", "boots", "what the device declares is true", "test_capabilities.py"),
        Area("slots", "boots", "copies and memory, called without the core", "test_slots.py"),
        Area("bounds", "boots", "nothing outside an output is written", "test_bounds.py"),
        Area("reads", "boots", "nothing outside an input is read", "test_reads.py"),
        Area("memory", "boots", "blocks never overlap, alignment, running out", "test_memory.py"),
        Area("copies", "boots", "to and from the host, other devices and other dtypes", "test_copies.py"),
        Area("required", "boots", "the required kernels: values in every dtype and layout", "test_operators.py"),
        Area("edges", "boots", "tiny and large values, NaN, truth, long sums, ties", "test_edges.py"),
        Area("numbers", "boots", "powers, casts, orders and products beside the usual ones", "test_numbers.py"),
        Area("forms", "boots", "far strides and offsets, dims that do not merge, duplicates", "test_forms.py"),
        Area("state", "boots", "a call is not answered with what an earlier one left", "test_state.py"),
        Area("views", "boots", "views share memory and need no kernel", "test_views.py"),
        Area("kernels", "trains", "what the card has beside the required kernels", "test_kernels.py"),
        Area("gradients", "trains", "first and second derivatives", "test_gradients.py"),
        Area("in-place", "trains", "writing into tensors, views and out=", "test_inplace.py"),
        Area("random", "trains", "the same numbers as every other device, bit for bit", "test_random.py"),
        Area("training", "trains", "small networks learn, without help from the cpu", "test_training.py"),
        Area("operators", "complete", "every operator: values in every dtype and layout", "test_operators.py"),
        Area("dtypes", "complete", "unsigned and complex dtypes, and declared limits", "test_dtypes.py"),
        Area("outputs", "complete", "every out= is filled, and nothing else is written", "test_outputs.py"),
        Area("sizes", "complete", "operators at sizes that programs use, timed", "test_sizes.py"),
        Area("streams", "complete", "streams and events order work", "test_streams.py"),
        Area("threads", "complete", "threads computing at once", "test_threads.py"),
        Area("ranks", "complete", "the communicator, where the card has one", "test_ranks.py"),
        Area("services", "complete", "profiles, identity, shared memory, recovery, where offered", "test_services.py"),
        Area("saving", "complete", "files written from the device", "test_saving.py"),
    )
}


def areas_up_to(level: str) -> list[Area]:
    """The areas that a level needs."""
    order = [*LEVELS]
    return [area for area in AREAS.values() if order.index(area.level) <= order.index(level)]


_UNARY = (
    "neg abs sign reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf erfc erfinv lgamma digamma sigmoid floor ceil trunc round bitwise_not logical_not"
)
_BINARY = (
    "add sub mul div floor_divide remainder fmod pow maximum minimum atan2 hypot copysign eq ne lt le gt ge "
    "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift where.self addcmul"
)

# Operators, by full name, that between them use all of each required kernel.
REQUIRED: dict[str, tuple[str, ...]] = {
    "copy_cast": ("clone", "contiguous", "flip", "copy_", "float", "double", "half", "bfloat16", "long", "bool"),
    "fill": ("full", "zeros", "ones", "fill_", "zero_"),
    "iota": ("arange.start_step", "arange"),
    "pointwise": (*_UNARY.split(), *_BINARY.split()),
    "reduce": ("sum", "sum.dim", "prod.dim_int", "amax", "amin", "argmax", "argmin", "any.dims", "all.dims"),
    "scan": ("cumsum", "cumprod", "cummax", "cummin"),
    "matmul": ("matmul", "mm", "bmm", "addmm"),
    "gather": ("gather", "index_select"),
    "scatter": ("scatter.src", "scatter.value", "scatter_add", "scatter_reduce.two"),
    "sort": ("sort", "argsort"),
    "random_bits": ("random_",),
}
_ENTRY_POINTS = {operator: entry for entry, operators in REQUIRED.items() for operator in operators}


def entry_point(operator: str) -> str | None:
    """The required kernel that an operator stands for, if it is one of those.

    >>> entry_point("cumsum"), entry_point("conv2d")
    ('scan', None)
    """
    return _ENTRY_POINTS.get(operator)
