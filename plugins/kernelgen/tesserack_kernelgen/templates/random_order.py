"""The order of random keys, which ``randperm`` is made of, on serial devices: into buckets by their upper bits, then
each bucket into small ones, whose few keys are put in order one by one.
"""

from __future__ import annotations

from typing import Any

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.templates._registry import template

__all__ = ["random_order"]

_BITS = 12  # at most, of a pass
_FEW = 4  # keys that a small bucket is to hold
_AT_ONCE = 1 << 15  # keys that one item orders, whose small buckets hold twice as many at worst
_BUCKET = 1 << 12  # of more keys, how many a bucket is to hold
_PART = 1 << 15  # keys worth an item of the first pass


@template("random_order")
def random_order(call: Call) -> LaunchPlan | Any:
    """``out`` = the positions that sort the evenly distributed keys ``in0`` / 2, equal ones as they come.

    Declined on devices of many threads, for which a sort is made, and for more keys than 32 bits count.
    """
    n = call.inputs[0].numel
    if not call.device.serial or n > 1 << 31:
        return NotImplemented
    if n <= _AT_ONCE:
        step = _Pass(call, 0, 1)
        return LaunchPlan([step.order()], step.counts_at)
    bits = 1
    while bits < _BITS and n >> bits > _BUCKET:
        bits += 1
    parts = max(1, min(n // _PART, 2 * call.device.compute_units))
    step = _Pass(call, bits, parts)
    return LaunchPlan([step.count(), step.starts(), step.spread(), step.order()], step.workspace)


class _Pass:
    """One kernel after the other: ``counts`` has numbers of keys by bucket and part, then where those begin."""

    def __init__(self, call: Call, bits: int, parts: int):
        self.call, self.bits, self.parts = call, bits, parts
        self.n: int = call.inputs[0].numel
        self.buckets = 1 << bits
        self.counts_at: int = 8 * (self.n + self.n % 2)
        #: Of a word, how many bits tell the position; those above are the key's.
        self.position_bits: int = max(1, (self.n - 1).bit_length())

    @property
    def workspace(self) -> int:
        """Bytes of words and counts."""
        return self.counts_at + 4 * (self.buckets * self.parts + 4)

    def _kernel(self, name: str) -> Kernel:
        self.kernel = kernel = Kernel(self.call, name)
        self.keys = f"((GLOBAL const u64*)({kernel.input(0).pointer}))"
        self.words = f"((GLOBAL u64*)({kernel.workspace(0, 'uint64').pointer}))"
        if self.bits:
            self.counts = f"((GLOBAL u32*)({kernel.workspace(self.counts_at, 'uint32').pointer}))"
        self.many_parts, self.count_n = kernel.own_index(self.parts), kernel.own_index(self.n)
        return kernel

    def _each_key(self, statement: str) -> str:
        """An item takes a part of the keys; ``place`` has where those of each bucket stand."""
        length = self.kernel.own_index(-(-self.n // self.parts))
        shift = self.kernel.number(64 - self.bits, "i32")
        return f"""const idx part = GROUP(0), from = part * {length};
  const idx to = {self.count_n} - from < {length} ? {self.count_n} : from + {length};
  u32 place[{1 << _BITS}];
  for (idx b = 0; b < {self.kernel.own_index(self.buckets)}; ++b) place[b] = {{begin}};
  for (idx i = from; i < to; ++i) {{{{
    const u64 key = {self.keys}[i];
    const idx bucket = (idx)(key >> {shift});
    {statement}
  }}}}"""

    def count(self) -> Launch:
        """How many keys of a part come into each bucket."""
        kernel = self._kernel("order_count")
        each = self._each_key("++place[bucket];").format(begin="0")
        buckets = kernel.own_index(self.buckets)
        store = f"{self.counts}[b * {self.many_parts} + part] = place[b];"
        return kernel.launch(f"\n  {each}\n  for (idx b = 0; b < {buckets}; ++b) {store}", (self.parts,), (1,))

    def starts(self) -> Launch:
        """Where they begin, and the end after the last."""
        kernel = self._kernel("order_starts")
        body = f"""
  u32 before = 0;
  for (idx k = 0; k < {kernel.own_index(self.buckets * self.parts)}; ++k) {{
    const u32 here = {self.counts}[k];
    {self.counts}[k] = before;
    before += here;
  }}
  {self.counts}[{kernel.own_index(self.buckets * self.parts)}] = before;"""
        return kernel.launch(body, (1,), (1,))

    def spread(self) -> Launch:
        """Words of a key's upper bits and its position, into the buckets."""
        kernel = self._kernel("order_spread")
        mask = kernel.number((1 << self.position_bits) - 1, "u64")
        each = self._each_key(f"{self.words}[place[bucket]++] = (key & ~{mask}) | (u64)i;")
        begin = f"{self.counts}[b * {self.many_parts} + part]"
        return kernel.launch("\n  " + each.format(begin=begin), (self.parts,), (1,))

    def order(self) -> Launch:
        """An item puts a bucket in order: by the next bits, then by comparing neighbours."""
        kernel = self._kernel("order_buckets" if self.bits else "order_all")
        out = f"((GLOBAL u64*)({kernel.output(0).pointer}))"
        mask = kernel.number((1 << self.position_bits) - 1, "u64")
        held = self.n >> self.bits
        bits = min(max((held // _FEW).bit_length(), 1), _BITS)
        small, shift = kernel.own_index(1 << bits), kernel.number(64 - self.bits - bits, "i32")
        small_mask = kernel.number((1 << bits) - 1, "u64")
        span, word = f"const idx from = 0, to = {self.count_n};", f"({self.keys}[i] & ~{mask}) | (u64)i"
        if self.bits:
            starts = f"{self.counts}[{{}} * {self.many_parts}]"
            span = f"const idx b = GROUP(0), from = (idx){starts.format('b')}, to = (idx){starts.format('(b + 1)')};"
            word = f"{self.words}[i]"
        body = f"""
  {span}
  GLOBAL u64* const line = {out if self.bits else self.words};
  u32 place[{1 << _BITS}];
  for (idx s = 0; s < {small}; ++s) place[s] = 0;
  for (idx i = from; i < to; ++i) ++place[(idx)({self._source("i")} >> {shift} & {small_mask})];
  u32 before = (u32)from;
  for (idx s = 0; s < {small}; ++s) {{
    const u32 here = place[s];
    place[s] = before;
    before += here;
  }}
  for (idx i = from; i < to; ++i) {{
    const u64 word = {word};
    line[place[(idx)(word >> {shift} & {small_mask})]++] = word;
  }}
  for (idx i = from + 1; i < to; ++i) {{
    const u64 word = line[i];
    idx j = i;
    for (; j > from && comes_after(line[j - 1], word, {mask}, {self.keys}); --j) line[j] = line[j - 1];
    line[j] = word;
  }}
  for (idx i = from; i < to; ++i) {out}[i] = line[i] & {mask};"""
        return kernel.launch(body, (self.buckets,), (1,), _AFTER)

    def _source(self, i: str) -> str:
        return f"{self.words}[{i}]" if self.bits else f"{self.keys}[{i}]"


# Keys whose upper bits agree are told apart by the whole, equal ones by where they stand.
_AFTER = """
DEVICE i32 comes_after(u64 a, u64 b, u64 positions, GLOBAL const u64* keys) {
  if ((a ^ b) & ~positions) return a > b;
  const u64 x = keys[a & positions] >> 1, y = keys[b & positions] >> 1;
  return x != y ? x > y : a > b;
}"""
