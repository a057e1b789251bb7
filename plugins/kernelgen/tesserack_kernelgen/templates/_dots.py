"""Matrix products of which both factors lie along the sum, by single items of devices that run loops.

Neither factor is transposed on its way to local memory: a few rows and columns at a time are multiplied by vectors of
neighbours along the sum, each pair into a vector of its own, which is added up at the end. So it is with the gradients
of a convolution's weight, where the sum goes over positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tesserack_kernelgen.templates._panel import LEAST, Lanes, copy, store

if TYPE_CHECKING:
    from tesserack_kernelgen.templates._product import Text

__all__ = ["LEAST_DEPTH", "Dots", "choose", "registers", "text", "total"]

LEAST_DEPTH = 256  # terms of a sum from which adding up the vectors costs little


@dataclass(frozen=True)
class Dots:
    """Sizes of the tile in registers, rows by columns, and of the tiles in local memory."""

    vector: int
    rows: int
    columns: int
    tile_m: int
    tile_n: int
    tile_k: int

    @property
    def leading(self) -> int:
        """Elements between rows of local memory: those of one k do not share a place in the cache."""
        return self.tile_k + self.vector


def choose(itemsize: int, simd_bytes: int, local_bytes: int) -> Dots | None:
    """Tiles for 32 vector registers of 64 bytes, or 16 of fewer, that fit into local memory; None if they cannot."""
    vector = max(2, min(16, simd_bytes // itemsize))
    dots = Dots(vector, 4, 4 if simd_bytes >= 64 else 2, 32, 48, 4096 // itemsize)
    while _bytes(dots, itemsize) > local_bytes:
        if dots.tile_k <= LEAST_DEPTH:
            return None
        dots = Dots(vector, 4, dots.columns, 16, 16, dots.tile_k // 2)
    return dots


def _bytes(d: Dots, itemsize: int) -> int:
    elements = (d.tile_m + d.tile_n) * d.leading + d.tile_m * d.tile_n
    return elements * itemsize + 32 * max(d.tile_m, d.tile_n)


class _Lines:
    """Local memory of a factor: a line of neighbours along k for every row or column."""

    side = "inner"

    def __init__(self, name: str, leading: int, lanes: Lanes):
        self.name, self.leading = name, leading
        self.lanes = lanes

    def place(self, outer: str, inner: str) -> str:
        return f"({outer}) * {self.leading} + {inner}"


def text(t: Text, d: Dots, lanes: Lanes, halves: list[str]) -> tuple[str, str]:
    """Body and helpers of the kernel; ``halves`` are the types of half as many lanes, and so on, down to two."""
    side, step = max(d.tile_m, d.tile_n), str(d.leading)
    arrays = [  # declared as vectors, so that they are aligned for them
        f"LOCAL_ARRAY({lanes.type}, {name}_, {count // d.vector}); "
        f"LOCAL {t.acc}* const {name} = (LOCAL {t.acc}*){name}_;"
        for name, count in (("pa", d.tile_m * d.leading), ("pb", d.tile_n * d.leading), ("sums", d.tile_m * d.tile_n))
    ]
    body = f"""
  {" ".join(arrays)}
  LOCAL_ARRAY(idx, moves, {side}); LOCAL_ARRAY(idx, places, {3 * side});
  {t.prologue}
  const i32 mm = LEAST({t.tile_m}, {t.m} - m0), nn = LEAST({t.tile_n}, {t.n} - n0);
  for (i32 k0 = begin; k0 < end; k0 += {d.tile_k}) {{
    const i32 kk = LEAST({d.tile_k}, end - k0), whole = (kk + {d.vector - 1}) / {d.vector} * {d.vector};
    {{
      const i32 count = mm; const idx first = m0;
      {copy(t.a, t.acc, _Lines("pa", d.leading, lanes), "za", side)}
      for (i32 s = 0; s < mm; s++) for (i32 e = kk; e < whole; e++) pa[s * {d.leading} + e] = 0;
    }}
    {{
      const i32 count = nn; const idx first = n0;
      {copy(t.b, t.acc, _Lines("pb", d.leading, lanes), "zb", side)}
      for (i32 s = 0; s < nn; s++) for (i32 e = kk; e < whole; e++) pb[s * {d.leading} + e] = 0;
    }}
    for (i32 j = 0; j < nn; j += {d.columns}) for (i32 i = 0; i < mm; i += {d.rows}) {{
      {registers(t.acc, d, lanes.type, f"pa + i * {step}", step, _lines(d, lanes.type), str(d.tile_n), "k0 == begin")}
    }}
  }}
  if (begin >= end) for (i32 e = 0; e < {d.tile_m * d.tile_n}; e++) sums[e] = 0;
  {store(t, d)}
"""
    return body, f"{LEAST}\n{total(t.acc, lanes.type, halves)}"


def _lines(d: Dots, v: str) -> str:
    """Statements that load vectors of the columns from lines of local memory."""
    return " ".join(
        f"const {v} y{c} = *(LOCAL const {v}*)(pb + (j + {c}) * {d.leading} + k);" for c in range(d.columns)
    )


def registers(acc: str, d: Dots, v: str, rows: str, step: str, load: str, leading: str, first: str) -> str:
    """Statements that multiply a few rows by a few columns, and add to the sums of the tile.

    Rows begin at ``rows``, ``step`` apart; ``load`` declares the vectors ``y0``... of columns; rows of sums are
    ``leading`` apart, and new where ``first``.
    """
    cells = [(r, c) for r in range(d.rows) for c in range(d.columns)]
    declare = " ".join(f"{v} s{r}_{c} = ({v})(0);" for r, c in cells)
    given = " ".join(f"const {v} x{r} = *(LOCAL const {v}*)(qa + {r} * {step} + k);" for r in range(d.rows))
    steps = " ".join(f"s{r}_{c} = fma(x{r}, y{c}, s{r}_{c});" for r, c in cells)
    finish = "\n      ".join(
        f"{{ LOCAL {acc}* o = sums + (i + {r}) * {leading} + j + {c}; const {acc} v = total(s{r}_{c}); "
        f"*o = {first} ? v : *o + v; }}"
        for r, c in cells
    )
    return f"""{declare}
      LOCAL const {acc}* const qa = {rows};
      for (i32 k = 0; k < whole; k += {d.vector}) {{
        {given} {load}
        {steps}
      }}
      {finish}"""


def total(acc: str, vector: str, halves: list[str]) -> str:
    """The function that adds up a vector, by halves."""
    lines, name = [], "v"
    for number, half in enumerate(halves):
        lines.append(f"const {half} h{number} = {name}.lo + {name}.hi;")
        name = f"h{number}"
    return f"DEVICE {acc} total({vector} v) {{ {' '.join(lines)} return {name}.lo + {name}.hi; }}"
