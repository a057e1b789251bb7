"""Gather and scatter along one dim, with indices checked on the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tesserack
from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import ITEMSIZE, REAL, STORAGE, accumulator
from tesserack_kernelgen.kernel import Kernel, Tensor
from tesserack_kernelgen.layout import coordinates, merge
from tesserack_kernelgen.templates._registry import template
from tesserack_kernelgen.templates.pointwise import Elementwise
from tesserack_kernelgen.templates.reduce import Fold

__all__ = ["by_index", "gather", "scatter"]

_PIECE = 16  # elements of a slice that lie side by side, at least


def _strides(x: Any, ndim: int, without: int | None = None) -> tuple[int, ...]:
    """Strides of an operand, zero for a number, with one dim left out of the walk."""
    if not hasattr(x, "strides"):
        return (0,) * ndim
    return tuple(0 if d == without else step for d, step in enumerate(x.strides))


@template("gather")
def gather(call: Call) -> LaunchPlan:
    """``out`` = ``in0`` taken along dim ``params[0]`` at ``in1``."""
    out, (x, index), dim = call.outputs[0], call.inputs, call.params[0]
    kernel = Kernel(call, "gather")
    target, source = kernel.output(0), kernel.input(0)
    bits = f"u{8 * ITEMSIZE[source.dtype]}"
    size, step = kernel.own_index(x.shape[dim]), kernel.own_index(x.strides[dim])
    positions = kernel.input(1) if hasattr(index, "strides") else None
    number = None if positions else kernel.scalar(1, "i64")
    fault = kernel.fault("index", "at")

    def line(at: list[str]) -> str:
        return f"""  const i64 at = {positions.load(at[1], "i64") if positions else number};
  const i32 found = at >= 0 && at < {size};
  const idx from_line = found ? (idx)at * {step} : 0;
  if (!found) {{ {fault} }}"""

    def body(at: list[str]) -> str:
        return f"""  ((GLOBAL {bits}*)({target.pointer}))[{at[0]}] =
      found ? ((GLOBAL const {bits}*)({source.pointer}))[{at[2]} + from_line] : 0;"""

    strides = [out.strides, _strides(index, out.ndim), _strides(x, out.ndim, dim)]
    return Elementwise(kernel, out.shape, strides, body, looped=True, line=line, line_of=1).plan()


@template("scatter")
def scatter(call: Call) -> LaunchPlan:
    """``out`` at ``in0`` along ``params[0]`` combined by opcode with ``in1``.

    Where elements add up, one item does a whole line if there are enough of them, in order, so that results do not
    depend on timing; otherwise items compare and swap, unless deterministic results are asked for.
    """
    out, (index, source), dim = call.outputs[0], call.inputs, call.params[0]
    ndim, shape = out.ndim, out.shape
    sizes = index.shape if hasattr(index, "shape") else source.shape if hasattr(source, "shape") else (1,) * ndim
    kernel = Kernel(call, "scatter")
    target = kernel.output(0)
    c = accumulator(target.dtype)
    positions = kernel.input(0) if hasattr(index, "strides") else kernel.scalar(0, "i64")
    values = kernel.input(1) if hasattr(source, "strides") else kernel.scalar(1, c)
    strides = [_strides(index, ndim), _strides(source, ndim), _strides(out, ndim, dim)]
    lines = math.prod(size for d, size in enumerate(sizes) if d != dim)
    length = sizes[dim] if ndim else 1
    size, step = kernel.own_index(shape[dim] if ndim else 1), kernel.own_index(out.strides[dim] if ndim else 0)
    fault = kernel.fault("index", "at")

    def element(at: Sequence[str], combined: str, otherwise: str) -> str:
        position = positions.load(at[0], "i64") if isinstance(positions, Tensor) else positions
        value = values.load(at[1], c) if isinstance(values, Tensor) else values
        return f"""  const i64 at = {position};
  if (at < 0 || at >= {size}) {{ {fault} {otherwise} }}
  const {c} v = {value};
  const idx place = {at[2]} + (idx)at * {step};
  {combined}"""

    if call.opcode == "set":
        return Elementwise(
            kernel, sizes, strides, lambda at: element(at, target.store("place", "v", c), "return;")
        ).plan()
    fold = Fold({"add": "sum"}.get(call.opcode, call.opcode), c)
    ordered = call.opcode in ("add", "prod") and c in REAL and tesserack.are_deterministic_algorithms_enabled()
    if not ordered and not _in_lines(call, target.dtype, lines, length):
        swap = _swap(target, fold)
        return Elementwise(kernel, sizes, strides, lambda at: element(at, swap, "return;")).plan()
    if call.device.serial and ndim:
        return LaunchPlan([_walk(kernel, sizes, strides, dim, (size, step), (positions, values, target), fold)])
    along = kernel.own_indices(s[dim] if ndim else 0 for s in strides)
    rest = [tuple(step for d, step in enumerate(s) if d != dim) for s in strides]
    count = kernel.own_index(length)
    one = f"{{ {c} acc = {target.load('place', c)}; {fold.add('acc', 'v')} {target.store('place', 'acc', c)} }}"

    def body(at: list[str]) -> str:
        moved = [f"{base} + r * {by}" for base, by in zip(at[:2], along[:2], strict=True)]
        return f"  for (idx r = 0; r < {count}; ++r) {{\n{element((*moved, at[2]), one, 'continue;')}\n  }}"

    return Elementwise(kernel, [s for d, s in enumerate(sizes) if d != dim], rest, body).plan()


def _in_lines(call: Call, dtype: str, lines: int, length: int) -> bool:
    """Whether one item does a whole line: always for what is narrower than a word that can be swapped."""
    device = call.device
    if ITEMSIZE[dtype] < 4 or (ITEMSIZE[dtype] == 8 and not device.int64_atomics):
        return True
    if device.serial:  # to compare and swap takes as long as several additions
        return 8 * lines >= device.compute_units or length <= 8
    return lines >= 4 * device.compute_units * device.group or length <= 8


def _walk(
    kernel: Kernel,
    sizes: Sequence[int],
    strides: Sequence[Sequence[int]],
    dim: int,
    target_dim: tuple[str, str],
    operands: tuple[Tensor | str, Tensor | str, Tensor],
    fold: Fold,
) -> Launch:
    """Items of a serial device take pieces of slices in order."""
    (size, step), (positions, values, target), c = target_dim, operands, fold.c

    def position(at: str) -> str:
        index = positions.load(at, "i64") if isinstance(positions, Tensor) else positions
        fault = kernel.fault("index", "at")
        return (
            f"const i64 at = {index};\n    if (at < 0 || at >= {size}) {{ {fault} continue; }}\n"
            f"    const idx to = (idx)at * {step};"
        )

    def combine(place: str, at: str) -> str:
        value = values.load(at, c) if isinstance(values, Tensor) else values
        return (
            f"const idx place = {place}; const {c} v = {value}; {c} acc = {target.load('place', c)}; "
            f"{fold.add('acc', 'v')} {target.store('place', 'acc', c)}"
        )

    return by_index(kernel, sizes, strides, dim, position, combine)


def _swap(target: Tensor, fold: Fold) -> str:
    """A loop of compare-and-swap on the word of an element."""
    bits = ITEMSIZE[target.dtype] * 8
    c = STORAGE[target.dtype]
    word = f"(GLOBAL u{bits}*)({target.pointer}) + place"
    read = f"AS_{c.upper()}(old)" if c.startswith("f") else f"({c})old"
    write = f"AS_U{bits}(acc)" if c.startswith("f") else f"(u{bits})acc"
    return f"""for (u{bits} old = *({word}), seen;; old = seen) {{
    {fold.c} acc = {read};
    {fold.add("acc", "v")}
    seen = CAS{bits}({word}, old, {write});
    if (seen == old) break;
  }}"""


def by_index(
    kernel: Kernel,
    sizes: Sequence[int],
    strides: Sequence[Sequence[int]],
    dim: int,
    position: Callable[[str], str],
    combine: Callable[[str, str], str],
) -> Launch:
    """Slices combined by index on serial devices: an item walks over all slices, in order, with a piece of each.

    A launch that combines slices along ``dim``, of ``sizes``, with those of the output that an index tells.

    Args:
        kernel: which has its operands.
        sizes: of the index.
        strides: of the index, the values and the output; that of the output along ``dim`` does not count.
        dim: along which the index counts.
        position: statements that declare the offset of a slice, ``to``, or continue; given the place of an index.
        combine: statements that combine an element of the output with a value; given the places of both.
    """
    units = kernel.call.device.compute_units
    length = sizes[dim]
    others = [d for d in range(len(sizes)) if d != dim]
    merged, rest = merge([sizes[d] for d in others], *([s[d] for d in others] for s in strides))
    *outer, inner = merged or (1,)
    rest = [s or (0,) for s in rest]
    along = kernel.own_indices(s[dim] for s in strides[:2])
    steps = kernel.indices(s[-1] for s in rest)
    lines = math.prod(outer)
    beside = rest[2][-1] == 1
    pieces = max(1, min(-(-2 * units // lines), inner // _PIECE if beside else inner))
    names = [f"c{d}" for d in range(len(outer))]
    places = [
        " + ".join(("0", *(f"{name} * {kernel.own_index(step)}" for name, step in zip(names, s, strict=False))))
        for s in rest
    ]
    count, across, piece = (kernel.own_index(v) for v in (length, pieces, -(-inner // pieces)))
    width = kernel.own_index(inner)
    slices = f"for (idx r = 0; r < {count}; ++r) {{"
    columns = "for (idx c = first; c < last; ++c) {"
    index, value, out = (
        f"{name} + c * {step}" if step != "0" else name for name, step in zip(("at0", "at1", "at2"), steps, strict=True)
    )
    found = position(f"{index} + r * {along[0]}")
    work = combine(f"to + {out}", f"{value} + r * {along[1]}")
    if steps[0] == "0" and beside:  # all of a slice goes to one place
        loops = f"{slices}\n    {found}\n    {columns}\n      {work}\n    }}\n  }}"
    else:
        order = (slices, columns) if beside else (columns, slices)
        loops = f"{order[0]} {order[1]}\n    {found}\n    {work}\n  }} }}"
    digits = coordinates("line", [kernel.own_index(size) for size in outer], names)
    body = f"""
  const idx line = (idx)GROUP(0) / {across}, first = (idx)GROUP(0) % {across} * {piece};
  const idx last = {width} - first < {piece} ? {width} : first + {piece};
  {digits}
  const idx at0 = {places[0]}, at1 = {places[1]}, at2 = {places[2]};
  {loops}"""
    return kernel.launch(body, (lines * pieces,), (1,))
