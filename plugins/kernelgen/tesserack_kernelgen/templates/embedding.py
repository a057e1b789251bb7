"""Rows of a table by index, and the sum of rows by index that is its gradient."""

from __future__ import annotations

from typing import Any

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import ITEMSIZE
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.templates._registry import template
from tesserack_kernelgen.templates.indexing import by_index
from tesserack_kernelgen.templates.pointwise import Elementwise

__all__ = ["embedding", "embedding_backward"]

_SEARCHED = 1 << 16  # indices; the search for equal ones takes the square of their number
_PART = 1 << 22  # rows that one sum takes: float32 stops counting at 2**24, and the core adds up parts


@template("embedding")
def embedding(call: Call) -> LaunchPlan:
    """``out (*, D)`` = rows of ``in0 (V, D)`` at the contiguous indices ``in1 (*)``."""
    table, index = call.inputs
    width, many = table.shape[1], index.numel
    kernel = Kernel(call, "embedding")
    out, source, positions = kernel.output(0), kernel.input(0), kernel.input(1)
    bits = f"u{8 * ITEMSIZE[source.dtype]}"
    size, step = kernel.index(table.shape[0]), kernel.index(table.strides[0])
    fault = kernel.fault("index", "at")

    def line(at: list[str]) -> str:
        return f"""  const i64 at = {positions.load(at[1], "i64")};
  const i32 found = at >= 0 && at < {size};
  const idx from_row = found ? (idx)at * {step} : 0;
  if (!found) {{ {fault} }}"""

    def body(at: list[str]) -> str:
        return f"""  ((GLOBAL {bits}*)({out.pointer}))[{at[0]}] =
      found ? ((GLOBAL const {bits}*)({source.pointer}))[from_row + {at[2]}] : 0;"""

    strides = [(width, 1), (1, 0), (0, table.strides[1])]
    return Elementwise(kernel, (many, width), strides, body, looped=True, line=line, line_of=1).plan()


@template("embedding_backward")
def embedding_backward(call: Call) -> Any:
    """``out (V, D)`` = rows of grad added up by index, in order, so that sums are repeatable.

    Of few processors, an item adds up a piece of every row; sums in half precision would round at every row there, and
    are declined. Of many, a group adds the rows of an index where that stands for the first time.
    """
    out, many = call.outputs[0], call.inputs[1].numel
    clear = Kernel(call, "embedding_clear")
    target = clear.output(0)
    by_group = not call.device.serial and call.device.group > 1 and many <= _SEARCHED
    if not by_group and (target.dtype not in ("float32", "float64") or many > _PART):
        return NotImplemented
    c = "f64" if target.dtype == "float64" else "f32"
    zero = Elementwise(clear, out.shape, [out.strides], lambda at: "  " + target.store(at[0], "0", c), looped=True)
    added = LaunchPlan([_by_group(call, c)]) if by_group else _in_order(call, c)
    return LaunchPlan([*(zero.plan().launches or ()), *(added.launches or ())])


def _in_order(call: Call, c: str) -> LaunchPlan:
    """Items take columns of all rows, or on serial devices pieces of them, one row after another."""
    out, index, padding = call.outputs[0], call.inputs[1], call.params[1]
    kernel = Kernel(call, "embedding_backward")
    target, source, positions = kernel.output(0), kernel.input(0), kernel.input(1)
    size, step, skip = kernel.index(out.shape[0]), kernel.index(out.strides[0]), kernel.number(padding, "i64")

    def position(at: str) -> str:
        return f"""const i64 at = {positions.load(at, "i64")};
    if (at < 0 || at >= {size}) {{ {kernel.fault("index", "at")} continue; }}
    if (at == {skip}) continue;
    const idx to = (idx)at * {step};"""

    def combine(place: str, at: str) -> str:
        return f"((GLOBAL {c}*)({target.pointer}))[{place}] += {source.load(at, c)};"

    width = out.shape[1]
    if call.device.serial:
        strides = [(1, 0), (width, 1), (0, out.strides[1])]
        return LaunchPlan([by_index(kernel, (index.numel, width), strides, 0, position, combine)])
    count, many = kernel.index(index.numel), kernel.index(width)

    def column(at: list[str]) -> str:
        row = combine(f"to + {at[0]}", f"r * {many} + {at[0]}")
        return f"  for (idx r = 0; r < {count}; ++r) {{\n    {position('r')}\n    {row}\n  }}"

    return Elementwise(kernel, (width,), [(out.strides[1],)], column).plan()


def _by_group(call: Call, c: str) -> Launch:
    """A group for every row of grad; all but the first of an index leave at once."""
    out, index, padding = call.outputs[0], call.inputs[1], call.params[1]
    kernel, group = Kernel(call, "embedding_rows"), call.device.group
    target, source, positions = kernel.output(0), kernel.input(0), kernel.input(1)
    size, width, count = kernel.index(out.shape[0]), kernel.own_index(out.shape[1]), kernel.own_index(index.numel)
    down, right = kernel.own_indices(out.strides)
    skip = kernel.number(padding, "i64")
    body = f"""
  LOCAL_ARRAY(i32, matches, {group}); LOCAL_ARRAY(i32, any, 1);
  const idx row = (idx)GROUP(0);
  const i64 at = {positions.load("row", "i64")};
  if (at < 0 || at >= {size}) {{
    if (LANE(0) == 0) {{ {kernel.fault("index", "at")} }}
    return;
  }}
  if (at == {skip}) return;
  if (LANE(0) == 0) any[0] = 0;
  BARRIER;
  for (idx r = LANE(0); r < row; r += {group}) if ({positions.load("r", "i64")} == at) any[0] = 1;
  BARRIER;
  if (any[0]) return;
  for (idx from = 0; from < {width}; from += {group}) {{
    const idx column = from + LANE(0);
    {c} sum = 0;
    for (idx first = row; first < {count}; first += {group}) {{
      const idx r = first + LANE(0);
      BARRIER;
      if (LANE(0) == 0) any[0] = 0;
      BARRIER;
      matches[LANE(0)] = r < {count} ? {positions.load("r", "i64")} == at : 0;
      if (matches[LANE(0)]) any[0] = 1;
      BARRIER;
      if (any[0] && column < {width})
        for (i32 k = 0; k < {group}; ++k)
          if (matches[k]) sum += {source.load(f"(first + k) * {width} + column", c)};
    }}
    if (column < {width}) {{ {target.store(f"(idx)at * {down} + column * {right}", "sum", c)} }}
  }}"""
    return kernel.launch(body, (index.numel,), (group,))
