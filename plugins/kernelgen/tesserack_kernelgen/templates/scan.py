"""Inclusive scans along the last dim."""

from __future__ import annotations

import math

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.card import Call
from tesserack_kernelgen.dtypes import REAL, register
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.layout import coordinates, lines, offset_text

__all__ = ["scan"]


def scan(call: Call) -> LaunchPlan:
    """``out0`` = running opcode of ``in0``; ``out1`` = where the running extreme was seen last."""
    x = call.inputs[0]
    c = register(call.compute)
    kernel = Kernel(call, "scan")
    rows, n = math.prod(x.shape[:-1]), x.shape[-1]
    outer, strides = lines(x.shape, *(t.strides for t in (x, *call.outputs)))
    names = [f"k{k}" for k in range(len(outer))]
    source, targets = kernel.input(0), [kernel.output(k) for k in range(len(call.outputs))]
    bases = [f"const idx base{k} = {offset_text(names, kernel.own_indices(steps))};" for k, steps in enumerate(strides)]
    steps = kernel.own_indices(t.strides[-1] for t in (x, *call.outputs))
    stores = targets[0].store(f"base1 + r * {steps[1]}", "v", c)
    if len(targets) == 2:
        stores += " " + targets[1].store(f"base2 + r * {steps[2]}", "(i64)at", "i64")
    begin = f"{coordinates('row', kernel.own_indices(outer), names)} {' '.join(bases)}"
    load = source.load(f"base0 + r * {steps[0]}", c)
    if call.device.serial or call.device.group == 1 or n <= 32:
        group = 1 if call.device.serial else call.device.group
        body = f"""
  const idx row = (idx)GROUP(0) * {group} + LANE(0);
  if (row >= {kernel.own_index(rows)}) return;
  {begin}
  {c} before = 0;
  idx place = 0;
  for (idx r = 0; r < {kernel.own_index(n)}; ++r) {{
    {c} v = {load};
    idx at = r;
    if (r > 0) {{ {_combine(call.opcode, c, "before", "place")} }}
    {stores}
    before = v;
    place = at;
  }}"""
        return LaunchPlan([kernel.launch(body, (-(-rows // group),), (group,))])
    return LaunchPlan([_blocks(kernel, call, c, rows, n, begin, load, stores)])


def _combine(opcode: str, c: str, left: str, where: str) -> str:
    """Statements that take what came before into ``v`` and ``at``; of equals the later one stays."""
    if opcode == "sum":
        return f"v = {left} + v;"
    if opcode == "prod":
        return f"v = {left} * v;"
    sign = ">" if opcode == "max" else "<"
    nan = f" || ({left} != {left} && v == v)" if c in REAL else ""
    return f"if ({left} {sign} v{nan}) {{ v = {left}; at = {where}; }}"


def _blocks(kernel: Kernel, call: Call, c: str, rows: int, n: int, begin: str, load: str, stores: str) -> Launch:
    """A group per row: blocks of one element per item, with a carry from each to the next."""
    group = call.device.group
    length = kernel.own_index(n)
    body = f"""
  LOCAL_ARRAY({c}, values, {group});
  LOCAL_ARRAY(idx, places, {group});
  const idx row = GROUP(0);
  {begin}
  {c} carry = 0;
  idx carried = 0;
  for (idx start = 0; start < {length}; start += {group}) {{
    const idx r = start + LANE(0);
    {c} v = 0;
    idx at = r;
    if (r < {length}) v = {load};
    for (i32 step = 1; step < {group}; step *= 2) {{
      values[LANE(0)] = v;
      places[LANE(0)] = at;
      BARRIER;
      if (LANE(0) >= step) {{
        const {c} w = values[LANE(0) - step];
        const idx p = places[LANE(0) - step];
        {_combine(call.opcode, c, "w", "p")}
      }}
      BARRIER;
    }}
    if (start > 0) {{ {_combine(call.opcode, c, "carry", "carried")} }}
    if (r < {length}) {{ {stores} }}
    values[LANE(0)] = v;
    places[LANE(0)] = at;
    BARRIER;
    carry = values[{group - 1}];
    carried = places[{group - 1}];
    BARRIER;
  }}"""
    return kernel.launch(body, (rows,), (group,))
