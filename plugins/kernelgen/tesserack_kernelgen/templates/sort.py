"""A stable sort along the last dim: short blocks by insertion, then merges in which every element finds its place.

On serial devices long blocks are sorted digit by digit, from the last on; in merges segments find their places, and
what follows in a segment is taken in order.
"""

from __future__ import annotations

import math

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import ITEMSIZE, REAL, accumulator, name_of
from tesserack_kernelgen.kernel import Kernel, Tensor
from tesserack_kernelgen.layout import coordinates, lines, offset_text
from tesserack_kernelgen.templates._registry import template

__all__ = ["sort"]

_BLOCK = 16
_DIGITS_FROM = 256  # elements of a row
_SEGMENT = 4096  # elements that an item of a serial device merges, one after the other


@template("sort")
def sort(call: Call) -> LaunchPlan:
    """``out0``, ``out1`` = values and positions of ``in0`` sorted; ``params[0]`` descending.

    Positions alone move, between two halves of the workspace; values are read where they lie.
    """
    x = call.inputs[0]
    n, rows = x.shape[-1], math.prod(x.shape[:-1])
    item = 8 if x.numel > 2**31 - 1 else 4
    half = -(-n * rows * item // 16) * 16
    if call.device.serial and n >= _DIGITS_FROM:
        run = _digit_block(call, n, rows)
        first = _Pass(call, "sort_digits", item)
        passes: list[Launch] = [first.digits(run, half)]
        workspace = 2 * half + 2 * first.key_bytes
    else:
        run = _BLOCK
        passes = [_Pass(call, "sort_blocks", item).blocks(0)]
        workspace = 2 * half if n > run else half
    turn = 0
    while run < n:
        passes.append(_Pass(call, "sort_merge", item).merge(run, turn * half, (1 - turn) * half))
        run, turn = 2 * run, 1 - turn
    passes.append(_Pass(call, "sort_write", item).write(turn * half))
    return LaunchPlan(passes, workspace)


def _digit_block(call: Call, n: int, rows: int) -> int:
    """Into blocks of how many elements a row is cut: none but to give all units work."""
    blocks = 1
    while rows * blocks < call.device.compute_units and n // blocks > 2 * _SEGMENT:
        blocks *= 2
    return -(-n // blocks)


class _Pass:
    """One kernel of the sort."""

    def __init__(self, call: Call, name: str, item: int):
        self.call, self.kernel = call, Kernel(call, name)
        self.x = call.inputs[0]
        self.source = self.kernel.input(0)
        self.dtype = "int32" if item == 4 else "int64"
        self.n = self.kernel.own_index(self.x.shape[-1])
        self.rows: int = math.prod(self.x.shape[:-1])
        outer, self.steps = lines(self.x.shape, *(t.strides for t in (self.x, *call.outputs)))
        self.names = [f"k{k}" for k in range(len(outer))]
        self.sizes = self.kernel.own_indices(outer)
        self.c = accumulator(name_of(self.x.dtype))
        self.group = 16 if call.device.serial else call.device.group

    def _positions(self, offset: int) -> Tensor:
        # Where it lies is always a field: the text is to be one for both halves.
        return self.kernel.workspace(offset, self.dtype)

    def _row(self, prefix: str, k: int) -> str:
        return f"const idx {prefix} = {offset_text(self.names, self.kernel.own_indices(self.steps[k]))};"

    def _value(self, position: str) -> str:
        return self.source.load(f"base + (idx)({position}) * {self.kernel.own_index(self.x.strides[-1])}", self.c)

    def _before(self, a: str, b: str) -> str:
        """Whether a stands strictly before b; NaN is greatest."""
        if self.call.params[0]:
            a, b = b, a
        nan = f" || ({b} != {b} && {a} == {a})" if self.c in REAL else ""
        return f"({a} < {b}{nan})"

    def _launch(self, body: str, count: int) -> Launch:
        begin = f"""
  const idx t = (idx)GROUP(0) * {self.group} + LANE(0);
  if (t >= {self.kernel.own_index(count)}) return;"""
        return self.kernel.launch(begin + body, (-(-count // self.group),), (self.group,))

    def blocks(self, offset: int) -> Launch:
        per_row = -(-self.x.shape[-1] // _BLOCK)
        positions, blocks = self._positions(offset), self.kernel.own_index(per_row)
        body = f"""
  const idx row = t / {blocks}, from = t % {blocks} * {_BLOCK};
  {coordinates("row", self.sizes, self.names)} {self._row("base", 0)}
  const idx many = {self.n} - from < {_BLOCK} ? {self.n} - from : {_BLOCK};
  {self.c} value[{_BLOCK}];
  idx place[{_BLOCK}];
  for (idx i = 0; i < many; ++i) {{
    const {self.c} v = {self._value("from + i")};
    idx j = i;
    for (; j > 0 && {self._before("v", "value[j - 1]")}; --j) {{ value[j] = value[j - 1]; place[j] = place[j - 1]; }}
    value[j] = v;
    place[j] = from + i;
  }}
  for (idx i = 0; i < many; ++i) {positions.store(f"row * {self.n} + from + i", "place[i]", self._c())}"""
        return self._launch(body, per_row * self.rows)

    def _c(self) -> str:
        return "i32" if ITEMSIZE[self.dtype] == 4 else "i64"

    @property
    def key_bytes(self) -> int:
        """Of one of two arrays of keys."""
        return -(-self.rows * int(self.x.shape[-1]) * int(self.c[1:]) // 8 // 16) * 16

    def _key(self) -> str:
        """Statements that declare ``key`` of ``v``: unsigned, in the order of values; equal values have equal keys."""
        wide = int(self.c[1:])
        k, top = f"u{wide}", f"(({f'u{wide}'})1 << {wide - 1})"
        if self.c in REAL:  # zeros are equal, and NaN is greatest
            text = f"""const {k} bits = AS_{k.upper()}(v == 0 ? ({self.c})0 : v);
    {k} key = v != v ? ~({k})0 : bits & {top} ? ~bits : bits | {top};"""
        else:
            text = f"{k} key = ({k})v" + (f" ^ {top};" if self.c[0] == "i" else ";")
        return f"{text} key = ~key;" if self.call.params[0] else text

    def digits(self, run: int, half: int) -> Launch:
        """An item sorts a block by counting, digit by digit; positions end where they began."""
        per_row, wide = -(-self.x.shape[-1] // run), int(self.c[1:])
        k, p, places = f"u{wide}", self._c(), range(0, wide, 8)
        keys = [self.kernel.workspace(2 * half + turn * self.key_bytes, f"uint{wide}") for turn in (0, 1)]
        positions = [self._positions(0), self._positions(half)]
        blocks, size = self.kernel.own_index(per_row), self.kernel.own_index(run)
        count = " ".join(f"++count[{32 * place} + (i32)(key >> {place} & 255)];" for place in places)
        body = f"""
  const idx row = t / {blocks}, from = t % {blocks} * {size}, line = row * {self.n} + from;
  {coordinates("row", self.sizes, self.names)} {self._row("base", 0)}
  const idx many = {self.n} - from < {size} ? {self.n} - from : {size};
  GLOBAL {k}* key0 = (GLOBAL {k}*)({keys[0].pointer}) + line;
  GLOBAL {k}* key1 = (GLOBAL {k}*)({keys[1].pointer}) + line;
  GLOBAL {p}* place0 = (GLOBAL {p}*)({positions[0].pointer}) + line;
  GLOBAL {p}* place1 = (GLOBAL {p}*)({positions[1].pointer}) + line;
  idx count[{32 * wide}];
  for (i32 i = 0; i < {32 * wide}; ++i) count[i] = 0;
  for (idx i = 0; i < many; ++i) {{
    const {self.c} v = {self._value("from + i")};
    {self._key()}
    key0[i] = key;
    place0[i] = ({p})(from + i);
    {count}
  }}
  i32 swapped = 0;
  for (i32 place = 0; place < {wide}; place += 8) {{
    const i32 digit = place * 32;
    if (count[digit + (i32)(key0[0] >> place & 255)] == many) continue;
    idx before = 0;
    for (i32 i = 0; i < 256; ++i) {{
      const idx here = count[digit + i];
      count[digit + i] = before;
      before += here;
    }}
    for (idx i = 0; i < many; ++i) {{
      const {k} key = key0[i];
      const idx to = count[digit + (i32)(key >> place & 255)]++;
      key1[to] = key;
      place1[to] = place0[i];
    }}
    GLOBAL {k}* const key2 = key0;
    key0 = key1;
    key1 = key2;
    GLOBAL {p}* const place2 = place0;
    place0 = place1;
    place1 = place2;
    swapped = !swapped;
  }}
  if (swapped)
    for (idx i = 0; i < many; ++i) place1[i] = place0[i];"""
        self.group = 1
        return self._launch(body, per_row * self.rows)

    def merge(self, run: int, start: int, to: int) -> Launch:
        given, merged = self._positions(start), self._positions(to)
        width = self.kernel.own_index(run)
        if self.call.device.serial:
            return self._merge_in_order(given, merged, width)
        body = f"""
  const idx row = t / {self.n}, i = t % {self.n}, line = row * {self.n};
  {coordinates("row", self.sizes, self.names)} {self._row("base", 0)}
  const idx first = i / (2 * {width}) * 2 * {width};
  const idx middle = first + {width} < {self.n} ? first + {width} : {self.n};
  const idx last = middle + {width} < {self.n} ? middle + {width} : {self.n};
  const idx at = {given.load("line + i", self._c())};
  const {self.c} v = {self._value("at")};
  idx low = i < middle ? middle : first, high = i < middle ? last : middle;
  const idx other = low;
  while (low < high) {{
    const idx probe = (low + high) / 2;
    const {self.c} w = {self._value(given.load("line + probe", self._c()))};
    if (i < middle ? {self._before("w", "v")} : !{self._before("v", "w")}) low = probe + 1; else high = probe;
  }}
  const idx own = i < middle ? i : first + i - middle;
  {merged.store("line + own + low - other", "at", self._c())}"""
        return self._launch(body, self.rows * self.x.shape[-1])

    def _merge_in_order(self, given: Tensor, merged: Tensor, width: str) -> Launch:
        """An item finds where its segment begins in both runs, and takes from them in turn."""
        self.group = 1
        per_row = -(-self.x.shape[-1] // _SEGMENT)
        segments = self.kernel.own_index(per_row)

        def read(k: str) -> str:
            return f"p{k} = {given.load(f'line + {k}', self._c())}; v{k} = {self._value(f'p{k}')};"

        body = f"""
  const idx row = t / {segments}, line = row * {self.n}, begin = t % {segments} * {_SEGMENT};
  const idx end = {self.n} - begin < {_SEGMENT} ? {self.n} : begin + {_SEGMENT};
  {coordinates("row", self.sizes, self.names)} {self._row("base", 0)}
  for (idx to = begin; to < end;) {{
    const idx first = to / (2 * {width}) * 2 * {width};
    const idx middle = {self.n} - first < {width} ? {self.n} : first + {width};
    const idx last = {self.n} - middle < {width} ? {self.n} : middle + {width};
    const idx stop = end < last ? end : last, taken = to - first, left = middle - first, right = last - middle;
    idx low = taken < right ? 0 : taken - right, high = taken < left ? taken : left;
    idx pi = 0, pj = 0;
    {self.c} vi = 0, vj = 0;
    while (low < high) {{
      const idx half_way = (low + high) / 2, i = first + half_way, j = middle + taken - 1 - half_way;
      {read("i")} {read("j")}
      if ({self._before("vj", "vi")}) high = half_way; else low = half_way + 1;
    }}
    idx i = first + low, j = middle + taken - low;
    if (i < middle) {{ {read("i")} }}
    if (j < last) {{ {read("j")} }}
    for (; to < stop; ++to) {{
      if (j >= last || (i < middle && !{self._before("vj", "vi")})) {{
        {merged.store("line + to", "pi", self._c())}
        if (++i < middle) {{ {read("i")} }}
      }} else {{
        {merged.store("line + to", "pj", self._c())}
        if (++j < last) {{ {read("j")} }}
      }}
    }}
  }}"""
        return self._launch(body, per_row * self.rows)

    def write(self, offset: int) -> Launch:
        values, positions = self.kernel.output(0), self.kernel.output(1)
        given = self._positions(offset)
        out, at_out = self.call.outputs
        bits = f"u{8 * ITEMSIZE[self.source.dtype]}"
        steps = self.kernel.own_indices(x.strides[-1] for x in (self.x, out, at_out))
        body = f"""
  const idx row = t / {self.n}, i = t % {self.n};
  {coordinates("row", self.sizes, self.names)} {self._row("base", 0)}
  {self._row("to", 1)} {self._row("note", 2)}
  const idx at = {given.load("t", self._c())};
  ((GLOBAL {bits}*)({values.pointer}))[to + i * {steps[1]}] =
      ((GLOBAL const {bits}*)({self.source.pointer}))[base + at * {steps[0]}];
  {positions.store(f"note + i * {steps[2]}", "(i64)at", "i64")}"""
        return self._launch(body, self.rows * self.x.shape[-1])
