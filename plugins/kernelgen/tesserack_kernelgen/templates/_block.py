"""Matrix products by groups that share local memory, for devices of many threads.

A group computes a tile: slices of both factors pass through local memory, the next one being fetched to registers
while the present one is multiplied, and every item holds a small tile of sums (Volkov and Demmel, "Benchmarking GPUs to
tune dense linear algebra", 2008).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tesserack_kernelgen.templates._factor import FactorText

if TYPE_CHECKING:
    from tesserack_kernelgen.templates._product import Text

__all__ = ["LARGE", "SMALL", "Block", "text"]

#: Elements between rows in local memory beyond the tile: neighbouring rows begin in other banks.
_PAD = 4


@dataclass(frozen=True)
class Block:
    """The tile of a group, the slice of k, and the sums of an item, in fours along both sides."""

    tile: int
    depth: int
    sums: int

    @property
    def across(self) -> int:
        """Items along one side of the tile."""
        return self.tile // self.sums

    @property
    def items(self) -> int:
        """Items of the group."""
        return self.across * self.across

    @property
    def fetches(self) -> int:
        """Elements that an item fetches of a slice."""
        return self.tile * self.depth // self.items


SMALL = Block(64, 16, 4)
LARGE = Block(128, 8, 8)


def text(t: Text, b: Block) -> tuple[str, str]:
    """Body and helpers of the kernel. ``t`` tells the operands and the tile's place among the groups."""
    row = b.tile + _PAD
    left, right = _Loader(t.a, "l", "m0", t.m, "za", t.acc, b), _Loader(t.b, "r", "n0", t.n, "zb", t.acc, b)
    body = f"""
  LOCAL_ARRAY({t.acc}, ls, {b.depth * row}); LOCAL_ARRAY({t.acc}, rs, {b.depth * row});
  {t.prologue}
  const i32 item = LANE(0), column = item % {b.across} * 4, line = item / {b.across} * 4;
  {left.place} {right.place}
  {t.acc} lv[{b.fetches}], rv[{b.fetches}], s[{b.sums}][{b.sums}];
  UNROLL for (i32 i = 0; i < {b.sums}; i++) UNROLL for (i32 j = 0; j < {b.sums}; j++) s[i][j] = 0;
  {{
    const i32 k0 = begin;
    {left.fetch}
    {right.fetch}
  }}
  for (i32 k0 = begin; k0 < end;) {{
    {left.share}
    {right.share}
    BARRIER;
    k0 += {b.depth};
    if (k0 < end) {{
      {left.fetch}
      {right.fetch}
    }}
    UNROLL for (i32 k = 0; k < {b.depth}; k++) {{
      {t.acc} x[{b.sums}], y[{b.sums}];
      UNROLL for (i32 i = 0; i < {b.sums}; i++) {{
        x[i] = ls[k * {row} + i / 4 * {b.across * 4} + line + i % 4];
        y[i] = rs[k * {row} + i / 4 * {b.across * 4} + column + i % 4];
      }}
      UNROLL for (i32 i = 0; i < {b.sums}; i++)
        UNROLL for (i32 j = 0; j < {b.sums}; j++) {_multiply(t.acc)}
    }}
    BARRIER;
  }}
  UNROLL for (i32 j = 0; j < {b.sums}; j++) {{
    const idx n = n0 + j / 4 * {b.across * 4} + column + j % 4;
    if (n < {t.n}) {{
      const idx at = zc + n / {t.out_inner} * {t.out_n[0]} + n % {t.out_inner} * {t.out_n[1]};
      UNROLL for (i32 i = 0; i < {b.sums}; i++) {{
        const idx m = m0 + i / 4 * {b.across * 4} + line + i % 4;
        if (m < {t.m}) {{ {t.out.store(f"at + m * {t.out_m}", t.finish("s[i][j]", "m", "n"), t.acc)} }}
      }}
    }}
  }}
"""
    return body, ""


def _multiply(acc: str) -> str:
    return "s[i][j] = fma(x[i], y[j], s[i][j]);" if acc in ("f32", "f64") else "s[i][j] += x[i] * y[j];"


class _Loader:
    """Statements of one factor: what an item finds out once, fetches of every slice, and shares.

    Neighbouring items fetch neighbours in memory: along k, or along the outer side, whose index then stays the item's
    own.
    """

    def __init__(self, f: FactorText, p: str, first: str, limit: str, batch: str, acc: str, b: Block):
        along_k = f.factor.run == "inner"
        width = b.depth if along_k else b.tile
        far = f"{p}_far + step * {b.items // width}"
        outer, inner = (far, f"{p}_near") if along_k else (f"{p}_near", far)
        side, number = ("inner", f"k0 + {p}_near") if along_k else ("outer", f"{first} + {p}_near")
        other, other_number = ("outer", f"{first} + e") if along_k else ("inner", "k0 + k")
        own = f.decode(side, number, f"{p}n")
        self.place = f"const i32 {p}_near = item % {width}, {p}_far = item / {width};" + ("" if along_k else f" {own}")
        self.fetch = f"""{{
        {own if along_k else ""}
        UNROLL for (i32 step = 0; step < {b.fetches}; step++) {{
          const i32 e = {outer}, k = {inner};
          {f.decode(other, other_number, f"{p}f")}
          {_element(f, p, f"{first} + e < {limit} && k0 + k < end", batch)}
          {p}v[step] = inside ? {f.tensor.load("at", acc)} : ({acc})0;
        }}
      }}"""
        place = f"({inner}) * {b.tile + _PAD} + {outer}"
        self.share = f"UNROLL for (i32 step = 0; step < {b.fetches}; step++) {p}s[{place}] = {p}v[step];"


def _element(f: FactorText, p: str, inside: str, batch: str) -> str:
    lines = [f"idx at = {batch} + {f.start} + {p}nat + {p}fat;"]
    conditions = [inside]
    for d, (_, start, _, _) in enumerate(f.coordinates):
        lines.append(f"const idx q{d} = {p}nc{d} + {p}fc{d} + {start};")
        move, condition = f.within(d, f"q{d}", "at")
        lines.append(move)
        conditions.append(condition)
    return " ".join((*lines, f"const i32 inside = {' && '.join(conditions)};"))
