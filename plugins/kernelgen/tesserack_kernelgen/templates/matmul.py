"""Matrix products: every item holds a block of the output."""

from __future__ import annotations

import math
from typing import Any

from tesserack.backends import LaunchPlan

from tesserack_kernelgen.card import Call
from tesserack_kernelgen.dtypes import register
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.layout import coordinates, offset_text

__all__ = ["matmul"]


def matmul(call: Call) -> LaunchPlan:
    """``out (batch..., M, N) = in0 (batch..., M, K) @ in1 (batch..., K, N)``, and ``in2`` added."""
    out, a, b = call.outputs[0], *call.inputs[:2]
    c = register(call.compute)
    kernel = Kernel(call, "matmul")
    (m, k), n = a.shape[-2:], b.shape[-1]
    rows, columns = (4, 16) if call.device.serial else (4, 1)
    group = (1, 1) if call.device.serial else (min(call.device.group, 64), max(call.device.group // 64, 1))
    batch = math.prod(out.shape[:-2])
    sizes = kernel.indices(out.shape[:-2])
    names = [f"k{d}" for d in range(len(sizes))]

    def base(x: Any, name: str) -> str:
        return f"const idx {name} = {offset_text(names, kernel.indices(x.strides[:-2]))};"

    def at(x: Any, name: str, row: str, column: str) -> str:
        return f"{name} + ({row}) * {kernel.index(x.strides[-2])} + ({column}) * {kernel.index(x.strides[-1])}"

    target, left, right = kernel.output(0), kernel.input(0), kernel.input(1)
    bias = call.inputs[2] if len(call.inputs) > 2 else None
    added = ""
    if hasattr(bias, "strides"):
        added = f" + {kernel.input(2).load(at(bias, 'third', 'm0 + i', 'n0 + j'), c)}"
    elif bias is not None:
        added = f" + {kernel.scalar(2, c)}"
    store = target.store(at(out, "to", "m0 + i", "n0 + j"), f"acc[i][j]{added}", c)
    down, across = -(-m // (rows * group[1])), -(-n // (columns * group[0]))

    def loop(height: str, width: str) -> str:
        return f"""for (idx p = 0; p < {kernel.index(k)}; ++p) {{
      {c} w[{columns}];
      for (i32 j = 0; j < {width}; ++j) w[j] = {right.load(at(b, "second", "p", "n0 + j"), c)};
      for (i32 i = 0; i < {height}; ++i) {{
        const {c} v = {left.load(at(a, "first", "m0 + i", "p"), c)};
        for (i32 j = 0; j < {width}; ++j) acc[i][j] += v * w[j];
      }}
    }}"""

    body = f"""
  const idx block = GROUP(0), tile = block % {kernel.index(down * across)};
  const idx batch = block / {kernel.index(down * across)};
  {coordinates("batch", sizes, names)}
  {base(out, "to")} {base(a, "first")} {base(b, "second")} {base(bias, "third") if hasattr(bias, "strides") else ""}
  const idx m0 = (tile / {kernel.index(across)} * {group[1]} + LANE(1)) * {rows};
  const idx n0 = (tile % {kernel.index(across)} * {group[0]} + LANE(0)) * {columns};
  const idx M = {kernel.index(m)}, N = {kernel.index(n)};
  if (m0 >= M || n0 >= N) return;
  const i32 high = M - m0 < {rows} ? M - m0 : {rows}, wide = N - n0 < {columns} ? N - n0 : {columns};
  {c} acc[{rows}][{columns}];
  for (i32 i = 0; i < {rows}; ++i) for (i32 j = 0; j < {columns}; ++j) acc[i][j] = 0;
  if (high == {rows} && wide == {columns}) {{
    {loop(str(rows), str(columns))}
  }} else {{
    {loop("high", "wide")}
  }}
  for (i32 i = 0; i < high; ++i)
    for (i32 j = 0; j < wide; ++j) {store}"""
    return LaunchPlan([kernel.launch(body, (batch * down * across,), group)])
