"""Elements by their places: where a mask is true, where values belong in sorted rows, the triangles of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.chunks import launch_chunks
from tesserack_kernelgen.dtypes import ITEMSIZE, accumulator
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.layout import contiguous, coordinates
from tesserack_kernelgen.templates._registry import template

__all__ = ["nonzero", "searchsorted", "tril", "triu"]

_BESIDE = 32  # searches of one item of a serial device, enough that compilers make gathers of their loop
_PART = 16  # elements that an item of a group looks at, at least
_MOST = 4096  # groups, each of which adds up what those before it found


@template("nonzero")
def nonzero(call: Call) -> LaunchPlan | Any:
    """``out``, ``(n, ndim)``, = coordinates of the ``n`` true elements of a mask, in order.

    Groups count theirs, each a stretch of the mask; then each knows where its coordinates begin.
    """
    out, mask = call.outputs[0], call.inputs[0]
    if not (mask.ndim and contiguous(mask.shape, mask.strides) and contiguous(out.shape, out.strides)):
        return NotImplemented
    serial = call.device.serial
    items = 1 if serial else call.device.group
    least = 8 * call.device.compute_units if serial else _MOST
    part = max(-(-mask.numel // (least * items)), 4096 if items == 1 else _PART)
    groups = -(-mask.numel // (part * items))
    return LaunchPlan([_found(call, part, items, groups), _written(call, part, items, groups)], 4 * groups)


class _Parts:
    """What both kernels say: the stretch of an item, from ``begin`` to ``end``, and the counts of groups."""

    def __init__(self, call: Call, part: int, items: int) -> None:
        self.kernel = Kernel(call, "nonzero")
        self.mask = f"((GLOBAL const u8*)({self.kernel.input(0).pointer}))"
        self.counts = f"((GLOBAL u32*)({self.kernel.workspace(0, 'uint32').pointer}))"
        total, size = self.kernel.own_index(call.inputs[0].numel), self.kernel.own_index(part)
        self.count = f"""  const idx first = ((idx)GROUP(0) * {items} + LANE(0)) * {size};
  const idx begin = first < {total} ? first : {total}, end = {total} - begin < {size} ? {total} : begin + {size};
  u32 mine = 0;
  for (idx i = begin; i < end; ++i) mine += {self.mask}[i] != 0;"""


def _found(call: Call, part: int, items: int, groups: int) -> Launch:
    parts = _Parts(call, part, items)
    total = f"  {parts.counts}[GROUP(0)] = mine;"
    if items > 1:
        total = f"""  LOCAL_ARRAY(u32, sums, {items});
  sums[LANE(0)] = mine;
  BARRIER;
  for (i32 apart = {items // 2}; apart > 0; apart /= 2) {{
    if (LANE(0) < apart) sums[LANE(0)] += sums[LANE(0) + apart];
    BARRIER;
  }}
  if (LANE(0) == 0) {parts.counts}[GROUP(0)] = sums[0];"""
    return parts.kernel.launch(f"{parts.count}\n{total}", (groups,), (items,))


def _written(call: Call, part: int, items: int, groups: int) -> Launch:
    parts = _Parts(call, part, items)
    before = f"""  idx to = 0;
  for (idx g = 0; g < (idx)GROUP(0); ++g) to += {parts.counts}[g];"""
    if items > 1:  # sums of the groups before, and of the items before in this one
        before = f"""  LOCAL_ARRAY(idx, sums, {items});
  idx to = 0;
  for (idx g = LANE(0); g < (idx)GROUP(0); g += {items}) to += {parts.counts}[g];
  sums[LANE(0)] = to;
  BARRIER;
  for (i32 apart = {items // 2}; apart > 0; apart /= 2) {{
    if (LANE(0) < apart) sums[LANE(0)] += sums[LANE(0) + apart];
    BARRIER;
  }}
  to = sums[0];
  BARRIER;
  sums[LANE(0)] = (idx)mine;
  BARRIER;
  for (i32 apart = 1; apart < {items}; apart *= 2) {{
    const idx more = LANE(0) >= apart ? sums[LANE(0) - apart] : 0;
    BARRIER;
    sums[LANE(0)] += more;
    BARRIER;
  }}
  to += sums[LANE(0)] - (idx)mine;"""
    return parts.kernel.launch(f"{parts.count}\n{before}\n{_rows(call, parts)}", (groups,), (items,))


def _rows(call: Call, parts: _Parts) -> str:
    """Line by line: what is true of a line is worked out once. Each place is written, and kept if its element is true,
    so that there is no branch to be guessed."""
    kernel, shape = parts.kernel, call.inputs[0].shape
    out = f"((GLOBAL i64*)({kernel.output(0).pointer}))"
    names = [f"c{d}" for d in range(len(shape) - 1)]
    columns = kernel.own_index(shape[-1])
    where = coordinates("line", kernel.own_indices(shape[:-1]), names)
    written = "".join(f"{out}[to * {len(shape)} + {d}] = {name}; " for d, name in enumerate([*names, "column"]))
    return f"""  const idx last = to + (idx)mine;
  for (idx i = begin; i < end && to < last;) {{
    const idx line = i / {columns};
    idx column = i - line * {columns};
    const idx stop = {columns} - column < end - i ? i + {columns} - column : end;
    {where}
    for (; i < stop && to < last; ++i, ++column) {{
      {written}
      to += {parts.mask}[i] != 0;
    }}
  }}"""


@template("searchsorted")
def searchsorted(call: Call) -> LaunchPlan:
    """``out0`` = how many of ``in0``, ``(n,)`` or ``(..., n)``, come before each of ``in1``.

    Those less than it do, or where ``params[0]`` says so those not greater. Comparisons are negated, so that NaN comes
    after all. All operands are contiguous.
    """
    (found,), (keys, values) = call.outputs, call.inputs
    kernel = Kernel(call, "searchsorted")
    to, source, wanted = kernel.output(0), kernel.input(0), kernel.input(1)
    c = accumulator(source.dtype)
    n, count = kernel.own_index(keys.shape[-1]), kernel.own_index(found.numel)
    # One row for all values is a row of all values.
    per_row = kernel.own_index(found.numel if keys.ndim == 1 else values.shape[-1])
    sign = ">" if call.params[0] else ">="

    group, w = (1, _BESIDE) if call.device.serial else (call.device.group, 1)
    each = f"UNROLL for (i32 j = 0; j < {w}; ++j)"
    search = f"""const idx row = i / {per_row}, base = row * {n}, left = (row + 1) * {per_row} - i;
    const idx stop = left < end - i ? left : end - i;
    const i32 many = stop < {w} ? (i32)stop : {w};
    idx low[{w}];
    {c} v[{w}];
    {each} {{
      v[j] = {wanted.load("i + (j < many ? j : 0)", c)};
      low[j] = base;
    }}
    for (idx length = {n}; length > 1;) {{
      const idx half_way = length / 2;
      {each} {{
        const {c} x = {source.load("low[j] + half_way - 1", c)};
        low[j] += x {sign} v[j] ? 0 : half_way;
      }}
      length -= half_way;
    }}
    for (i32 j = 0; j < many; ++j) {{
      const {c} x = {source.load("low[j]", c)};
      {to.store("i + j", f"(i64)(low[j] - base + (x {sign} v[j] ? 0 : 1))", "i64")}
    }}"""
    if call.device.serial:
        loop = f"for (idx i = begin; i < end;) {{\n    {search}\n    i += many;\n  }}"
        return LaunchPlan([launch_chunks(kernel, found.numel, loop)])
    body = f"""
  const idx i = (idx)GROUP(0) * {group} + LANE(0), end = {count};
  if (i >= end) return;
  {search}"""
    return LaunchPlan([kernel.launch(body, (-(-found.numel // group),), (group,))])


@template("tril")
def tril(call: Call) -> LaunchPlan | Any:
    """``out`` = the matrices of ``in`` where a column is at most its row and ``params[0]``, zero elsewhere."""
    return _triangle(call, lambda row, diagonal: ("0", f"{row} + {diagonal} + 1"))


@template("triu")
def triu(call: Call) -> LaunchPlan | Any:
    """Where it is at least that."""
    return _triangle(call, lambda row, diagonal: (f"{row} + {diagonal}", "columns"))


def _triangle(call: Call, kept: Callable[[str, str], tuple[str, str]]) -> LaunchPlan | Any:
    """``kept``: from which column on a row's elements stay, and up to which, before both are cut to what there is."""
    out, x = call.outputs[0], call.inputs[0]
    if not (contiguous(x.shape, x.strides) and contiguous(out.shape, out.strides)):
        return NotImplemented
    kernel = Kernel(call, "triangle")
    source = kernel.input(0)
    bits = f"u{8 * ITEMSIZE[source.dtype]}"
    to, given = f"((GLOBAL {bits}*)({kernel.output(0).pointer}))", f"((GLOBAL const {bits}*)({source.pointer}))"
    height, width = x.shape[-2:]
    columns, rows = kernel.own_index(width), kernel.own_index(height)
    diagonal = kernel.own_index(max(min(call.params[0], width), -height))
    begin, end = kept("row", diagonal)
    line = f"""const idx columns = {columns}, row = line % {rows}, low = {begin}, high = {end};
    const idx from = low < 0 ? 0 : low < columns ? low : columns;
    const idx upto = high < from ? from : high < columns ? high : columns;"""
    lines = math.prod(x.shape[:-1])
    if call.device.serial:
        loop = f"""for (idx line = begin / {columns}; line * {columns} < end; ++line) {{
    {line}
    const idx base = line * columns;
    const idx start = begin > base ? begin - base : 0, stop = end - base < columns ? end - base : columns;
    const idx keep = from < start ? start : from < stop ? from : stop;
    const idx drop = upto < keep ? keep : upto < stop ? upto : stop;
    for (idx c = start; c < keep; ++c) {to}[base + c] = 0;
    for (idx c = keep; c < drop; ++c) {to}[base + c] = {given}[base + c];
    for (idx c = drop; c < stop; ++c) {to}[base + c] = 0;
  }}"""
        return LaunchPlan([launch_chunks(kernel, x.numel, loop)])
    group = call.device.group
    body = f"""  const idx i = (idx)GROUP(0) * {group} + LANE(0);
  if (i >= {kernel.own_index(lines * width)}) return;
  const idx line = i / {columns}, c = i - line * {columns};
  {line}
  {to}[i] = c >= from && c < upto ? {given}[i] : 0;"""
    return LaunchPlan([kernel.launch(body, (-(-x.numel // group),), (group,))])
