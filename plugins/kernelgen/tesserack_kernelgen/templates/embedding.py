"""Rows of a table by index, and the sum of rows by index that is its gradient."""

from __future__ import annotations

from typing import Any

from tesserack.backends import LaunchPlan

from tesserack_kernelgen.card import Call
from tesserack_kernelgen.dtypes import ITEMSIZE
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.templates.pointwise import Elementwise

__all__ = ["embedding", "embedding_backward"]


def embedding(call: Call) -> LaunchPlan:
    """``out (*, D)`` = rows of ``in0 (V, D)`` at the contiguous indices ``in1 (*)``."""
    table, index = call.inputs
    width, many = table.shape[1], index.numel
    kernel = Kernel(call, "embedding")
    out, source, positions = kernel.output(0), kernel.input(0), kernel.input(1)
    bits = f"u{8 * ITEMSIZE[source.dtype]}"
    size, step = kernel.index(table.shape[0]), kernel.index(table.strides[0])
    fault = kernel.fault("index", "at")

    def body(at: list[str]) -> str:
        to = f"((GLOBAL {bits}*)({out.pointer}))[{at[0]}]"
        return f"""  const i64 at = {positions.load(at[1], "i64")};
  if (at < 0 || at >= {size}) {{ {fault} {to} = 0; return; }}
  {to} = ((GLOBAL const {bits}*)({source.pointer}))[(idx)at * {step} + {at[2]}];"""

    strides = [(width, 1), (1, 0), (0, table.strides[1])]
    return Elementwise(kernel, (many, width), strides, body).plan()


def embedding_backward(call: Call) -> Any:
    """``out (V, D)`` = rows of grad added up by index; an item adds one column in order, so that sums are repeatable.

    Half precision is declined, since sums in it would round at every row.
    """
    out, index, padding = call.outputs[0], call.inputs[1], call.params[1]
    width, many = out.shape[1], index.numel
    clear = Kernel(call, "embedding_clear")
    target = clear.output(0)
    if target.dtype not in ("float32", "float64"):
        return NotImplemented
    c = "f32" if target.dtype == "float32" else "f64"
    zero = Elementwise(clear, out.shape, [out.strides], lambda at: "  " + target.store(at[0], "0", c)).plan()
    kernel = Kernel(call, "embedding_backward")
    target, source, positions = kernel.output(0), kernel.input(0), kernel.input(1)
    size, step, skip = kernel.index(out.shape[0]), kernel.index(out.strides[0]), kernel.number(padding, "i64")
    count = kernel.index(many)

    def body(at: list[str]) -> str:
        place = f"(idx)at * {step} + {at[0]}"
        return f"""  for (idx r = 0; r < {count}; ++r) {{
    const i64 at = {positions.load("r", "i64")};
    if (at < 0 || at >= {size}) {{ {kernel.fault("index", "at")} continue; }}
    if (at == {skip}) continue;
    ((GLOBAL {c}*)({target.pointer}))[{place}] += {source.load(f"r * {kernel.index(width)} + {at[0]}", c)};
  }}"""

    added = Elementwise(kernel, (width,), [(out.strides[1],)], body).plan()
    return LaunchPlan([*(zero.launches or ()), *(added.launches or ())])
