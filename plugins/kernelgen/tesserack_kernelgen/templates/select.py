"""The first few elements of every row in order, without sorting the rest."""

from __future__ import annotations

import math
from typing import Any

from tesserack.backends import LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import ITEMSIZE, REAL, accumulator
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.layout import coordinates, lines, offset_text
from tesserack_kernelgen.templates._registry import template

__all__ = ["topk"]

_MOST = 64  # elements; for more, rows are sorted


@template("topk")
def topk(call: Call) -> LaunchPlan | Any:
    """``out0``, ``out1`` = the ``params[0]`` first of ``in0`` along its last dim, and their positions.

    ``params[2]`` says whether from the greatest. NaN is greatest, and of equals the first comes first.
    """
    (values, positions), x, (k, _, largest, _) = call.outputs, call.inputs[0], call.params
    if not 0 < k <= _MOST or not x.ndim:
        return NotImplemented
    kernel = Kernel(call, "topk")
    source, to, note = kernel.input(0), kernel.output(0), kernel.output(1)
    c = accumulator(source.dtype)
    rows, n = math.prod(x.shape[:-1]), kernel.own_index(x.shape[-1])
    outer, strides = lines(x.shape, *(t.strides for t in (x, values, positions)))
    names, sizes = [f"k{d}" for d in range(len(outer))], kernel.own_indices(outer)
    base, at0, at1 = (offset_text(names, kernel.own_indices(steps)) for steps in strides)
    steps = kernel.own_indices(t.strides[-1] for t in (x, values, positions))
    bits = f"u{8 * ITEMSIZE[source.dtype]}"
    wanted = kernel.own_index(k)
    begin = f"""{coordinates("row", sizes, names)}
  const idx base = {base}, to = {at0}, note = {at1};"""
    load = source.load(f"base + r * {steps[0]}", c)

    def put(number: str, position: str) -> str:
        return f"""((GLOBAL {bits}*)({to.pointer}))[to + {number} * {steps[1]}] =
        ((GLOBAL const {bits}*)({source.pointer}))[base + {position} * {steps[0]}];
    {note.store(f"note + {number} * {steps[2]}", f"(i64)({position})", "i64")}"""

    if call.device.serial or call.device.group == 1:
        group = 1 if call.device.serial else call.device.group
        body = f"""
  const idx row = (idx)GROUP(0) * {group} + LANE(0);
  if (row >= {kernel.own_index(rows)}) return;
  {begin}
  {c} best[{_MOST}];
  idx place[{_MOST}];
  idx many = 0;
  for (idx r = 0; r < {n}; ++r) {{
    const {c} v = {load};
    if (many == {wanted} && !({_before(c, largest, "v", "best[many - 1]")})) continue;
    idx j = many < {wanted} ? many++ : many - 1;
    for (; j > 0 && ({_before(c, largest, "v", "best[j - 1]")}); --j) {{
      best[j] = best[j - 1];
      place[j] = place[j - 1];
    }}
    best[j] = v;
    place[j] = r;
  }}
  for (idx j = 0; j < {wanted}; ++j) {{
    {put("j", "place[j]")}
  }}"""
        return LaunchPlan([kernel.launch(body, (-(-rows // group),), (group,))])
    group = call.device.group
    after_last = f"({_before(c, largest, 'last', 'v')}) || (!({_before(c, largest, 'v', 'last')}) && r > taken)"
    body = f"""
  LOCAL_ARRAY({c}, values, {group});
  LOCAL_ARRAY(idx, places, {group});
  const idx row = GROUP(0);
  {begin}
  {c} last = 0;
  idx taken = -1;
  for (idx j = 0; j < {wanted}; ++j) {{
    {c} best = 0;
    idx place = -1;
    for (idx r = LANE(0); r < {n}; r += {group}) {{
      const {c} v = {load};
      if (j > 0 && !({after_last})) continue;
      if (place < 0 || ({_before(c, largest, "v", "best")})) {{ best = v; place = r; }}
    }}
    values[LANE(0)] = best;
    places[LANE(0)] = place;
    BARRIER;
    for (i32 apart = {group // 2}; apart > 0; apart /= 2) {{
      if (LANE(0) < apart && places[LANE(0) + apart] >= 0) {{
        const {c} w = values[LANE(0) + apart];
        const idx p = places[LANE(0) + apart];
        const {c} v = values[LANE(0)];
        const idx q = places[LANE(0)];
        if (q < 0 || ({_before(c, largest, "w", "v")}) || (!({_before(c, largest, "v", "w")}) && p < q)) {{
          values[LANE(0)] = w;
          places[LANE(0)] = p;
        }}
      }}
      BARRIER;
    }}
    last = values[0];
    taken = places[0];
    if (LANE(0) == 0) {{
    {put("j", "taken")}
    }}
    BARRIER;
  }}"""
    return LaunchPlan([kernel.launch(body, (rows,), (group,))])


def _before(c: str, largest: bool, a: str, b: str) -> str:
    """Whether a stands before b."""
    if largest:
        return f"{a} > {b}" + (f" || ({a} != {a} && {b} == {b})" if c in REAL else "")
    return f"{a} < {b}" + (f" || ({b} != {b} && {a} == {a})" if c in REAL else "")
