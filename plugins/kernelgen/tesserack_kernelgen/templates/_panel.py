"""Matrix products by single items, for devices whose items are iterations of a loop on few processors.

One item computes a tile: both factors are copied to local memory, the left one by panels of rows, and multiplied by a
kernel of registers whose vectors are written out (Goto and van de Geijn, "Anatomy of high-performance matrix
multiplication", 2008).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tesserack_kernelgen.dtypes import STORAGE
from tesserack_kernelgen.templates._factor import FactorText

if TYPE_CHECKING:
    from tesserack_kernelgen.templates._product import Text

__all__ = ["LEAST", "Lanes", "Panel", "Rows", "choose", "copy", "registers", "store", "text"]

LEAST = "#define LEAST(x, y) ((x) < (y) ? (x) : (y))\n#define MOST(x, y) ((x) > (y) ? (x) : (y))"


@dataclass(frozen=True)
class Panel:
    """Sizes of the tile in registers (rows, and vectors of columns) and of the tiles in local memory."""

    vector: int
    rows: int
    vectors: int
    tile_m: int
    tile_n: int
    tile_k: int

    @property
    def columns(self) -> int:
        """Columns of the tile in registers."""
        return self.vector * self.vectors


class Tile(Protocol):
    """What the store of a tile's sums knows of a schedule."""

    @property
    def tile_n(self) -> int:
        """Columns of the tile, and elements between rows of its sums."""


def choose(itemsize: int, simd_bytes: int, local_bytes: int) -> Panel:
    """Tiles for 32 vector registers of 64 bytes, or 16 of fewer, that fit into local memory."""
    vector = max(2, min(16, simd_bytes // itemsize))
    rows = 8 if simd_bytes >= 64 else 4
    panel = Panel(vector, rows, 2, 96, 16 * vector, 256)
    while _bytes(panel, itemsize) > local_bytes and panel.tile_k > 32:
        panel = Panel(vector, rows, 2, 48, max(2 * vector, panel.tile_n // 2), panel.tile_k // 2)
    return panel


def _bytes(p: Panel, itemsize: int) -> int:
    elements = p.tile_m * p.tile_k + p.tile_k * (p.tile_n + p.vector) + p.tile_m * p.tile_n
    return elements * itemsize + 32 * max(p.tile_m, p.tile_n, p.tile_k)


@dataclass(frozen=True)
class Lanes:
    """Vectors that can be masked: their type, that of their lanes' numbers, and how many lanes there are."""

    type: str
    integers: str
    count: int


def text(t: Text, p: Panel, vector_type: str, lanes: Lanes | None = None) -> tuple[str, str]:
    """Body and helpers of the kernel. ``t`` tells the operands, the tile's size and place among the groups."""
    side = max(p.tile_m, p.tile_n, p.tile_k)
    leading = p.tile_n + p.vector
    arrays = [  # declared as vectors, so that they are aligned for them
        f"LOCAL_ARRAY({vector_type}, {name}_, {count // p.vector}); "
        f"LOCAL {t.acc}* const {name} = (LOCAL {t.acc}*){name}_;"
        for name, count in (("pa", p.tile_m * p.tile_k), ("pb", p.tile_k * leading), ("sums", p.tile_m * p.tile_n))
    ]
    body = f"""
  {" ".join(arrays)}
  LOCAL_ARRAY(idx, moves, {side}); LOCAL_ARRAY(idx, places, {3 * side});
  {t.prologue}
  const i32 mm = LEAST({t.tile_m}, {t.m} - m0), nn = LEAST({t.tile_n}, {t.n} - n0);
  const i32 wide = (nn + {p.columns - 1}) / {p.columns} * {p.columns};
  const i32 tall = (mm + {p.rows - 1}) / {p.rows} * {p.rows};
  for (i32 k0 = begin; k0 < end; k0 += {p.tile_k}) {{
    const i32 kk = LEAST({p.tile_k}, end - k0);
    {{
      const i32 count = nn; const idx first = n0;
      {copy(t.b, t.acc, _Columns(leading, lanes), "zb", side)}
      for (i32 s = 0; s < kk; s++) for (i32 e = nn; e < wide; e++) pb[s * {leading} + e] = 0;
    }}
    {{
      const i32 count = mm; const idx first = m0;
      {copy(t.a, t.acc, Rows(p.rows, p.tile_k), "za", side)}
      for (i32 e = mm; e < tall; e++) for (i32 s = 0; s < kk; s++) pa[{Rows(p.rows, p.tile_k).place("e", "s")}] = 0;
    }}
    for (i32 j = 0; j < nn; j += {p.columns}) for (i32 i = 0; i < mm; i += {p.rows}) {{
      LOCAL const {t.acc}* const qb = pb + j;
      {registers(t.acc, p, vector_type, _side_by_side(p, vector_type, leading), str(p.tile_n), "k0 == begin")}
    }}
  }}
  if (begin >= end) for (i32 e = 0; e < {p.tile_m * p.tile_n}; e++) sums[e] = 0;
  {store(t, p)}
"""
    return body, LEAST


class _Columns:
    """Local memory of the right factor: rows of k."""

    name, side = "pb", "outer"

    def __init__(self, leading: int, lanes: Lanes | None):
        self.leading = leading
        self.lanes = lanes

    def place(self, outer: str, inner: str) -> str:
        return f"({inner}) * {self.leading} + {outer}"


class Rows:
    """Local memory of the left factor: panels of a few rows, and in each the values of one k side by side."""

    name, side, lanes = "pa", "", None

    def __init__(self, rows: int, tile_k: int):
        self.rows, self.tile_k = rows, tile_k

    def place(self, outer: str, inner: str) -> str:
        panel = f"({outer}) / {self.rows} * {self.rows * self.tile_k} + ({outer}) % {self.rows}"
        return f"{panel} + ({inner}) * {self.rows}"


class Target(Protocol):
    """Where a factor's tile is copied: elements along ``side`` are neighbours there, with room for a vector more."""

    @property
    def name(self) -> str:
        """Of the local memory."""

    @property
    def side(self) -> str:
        """ "outer", "inner" or neither."""

    @property
    def lanes(self) -> Lanes | None:
        """Vectors to copy by, if there are such."""

    def place(self, outer: str, inner: str) -> str:
        """An index."""


def copy(f: FactorText, acc: str, target: Target, batch: str, table: int) -> str:
    """Statements that copy a tile of a factor to local memory, run by run: of the indices along one side, those that
    are neighbours; the other side's offsets stand in tables."""
    run = f.factor.run
    across = "inner" if run == "outer" else "outer"
    bounds = {"outer": ("first", "count"), "inner": ("k0", "kk")}
    (run_first, run_count), (first, count) = bounds[run], bounds[across]
    n = len(f.coordinates)
    keep = "".join(f" places[{j * table} + s] = ac{j};" for j in range(n))
    left = f.left_in_run(run, "r")
    length = f"LEAST({run_count} - e0, {left})" if left else f"{run_count} - e0"
    place = target.place("e0 + e", "s") if run == "outer" else target.place("s", "e0 + e")
    lanes = target.lanes if run == target.side and f.neighbours and STORAGE[f.tensor.dtype] == acc else None
    inner = (
        _copy_within(f, acc, run, table, f"{target.name}[{place}]", lanes)
        if n
        else f"const i32 low = 0, high = length; {_copy_vectors(f, acc, f'{target.name}[{place}]', lanes)}"
        if lanes and run == "inner"
        else (
            f"const idx step = {f.last_stride(run)};\n"
            f"for (i32 e = 0; e < length; e++) {target.name}[{place}] = {f.tensor.load('at + e * step', acc)};"
        )
    )
    return f"""for (i32 s = 0; s < {count}; s++) {{ {f.decode(across, f"{first} + s", "a")} moves[s] = aat;{keep} }}
      for (i32 e0 = 0; e0 < {run_count};) {{
        {f.decode(run, f"{run_first} + e0", "r")}
        const i32 length = {length};
        for (i32 s = 0; s < {count}; s++) {{
          idx at = {batch} + {f.start} + moves[s] + rat;
          {inner}
        }}
        e0 += length;
      }}"""


def _copy_within(f: FactorText, acc: str, run: str, table: int, target: str, lanes: Lanes | None) -> str:
    """The same for one run of a factor with coordinates: zeros outside, and neighbours between ``low`` and ``high``."""
    last = len(f.coordinates) - 1
    lines, inside = [], ["1"]
    for d in range(last):
        lines.append(f"const idx q{d} = places[{d * table} + s] + rc{d} + {f.coordinates[d][1]};")
        move, condition = f.within(d, f"q{d}", "at")
        lines.append(move)
        inside.append(condition)
    limit, start, stride, divisor = f.coordinates[last]
    lines.append(f"const idx q = places[{last * table} + s] + rc{last} + {start}; i32 low = 0, high = 0;")
    condition = " && ".join(inside)
    clear = f"for (i32 e = {{}}; e < {{}}; e++) {target} = 0;"
    if f.factor.divided:
        lines += [
            f"if ({condition}) {{ high = (i32)LEAST((idx)length, {limit} * {divisor} - q);",
            f"  low = (i32)(q < 0 ? -q : ({divisor} - q % {divisor}) % {divisor}); }}",
            clear.format("0", "length"),
            f"at += (q + low) / {divisor} * {stride};",
            f"for (i32 e = low; e < high; e += (i32){divisor}, at += {stride}) {target} = {f.tensor.load('at', acc)};",
        ]
    else:
        by = f.last_step(run)
        lines += [
            f"if ({condition}) {{ low = (i32)(q < 0 ? ({by} == 1 ? -q : ({by} - 1 - q) / {by}) : 0);",
            f"  high = (i32)({by} == 1 ? {limit} - q : ({limit} - q + {by} - 1) / {by}); }}",
            "low = LEAST(low, length); high = MOST(low, LEAST(high, length));",
        ]
        if lanes:
            return "\n          ".join((*filter(None, lines), _copy_vectors(f, acc, target, lanes)))
        lines += [
            f"const idx step = {f.last_stride(run)};",
            clear.format("0", "low"),
            f"for (i32 e = low; e < high; e++) {target} = {f.tensor.load('at + e * step', acc)};",
            clear.format("high", "length"),
        ]
    return "\n          ".join(filter(None, lines))


def _copy_vectors(f: FactorText, acc: str, target: str, lanes: Lanes) -> str:
    """A run in vectors, zeros outside of ``low`` and ``high``; one by one where a vector would leave the memory."""
    n = lanes.count
    numbers = ", ".join(map(str, range(n)))
    return f"""for (i32 e = 0; e < length; e += {n}) {{
            {lanes.type} v = ({lanes.type})(0);
            if (low < e + {n} && e < high && low < high) {{
              if (at + e >= 0 && at + e + {n} <= {f.reach}) {{
                const {lanes.integers} lane = ({lanes.integers})({numbers}) + ({lanes.integers})(e);
                v = vload{n}(0, (GLOBAL const {acc}*)({f.tensor.pointer}) + at + e);
                v = ((lane >= ({lanes.integers})(low)) & (lane < ({lanes.integers})(high))) ? v : ({lanes.type})(0);
              }} else {{
                {acc} alone[{n}];
                for (i32 j = 0; j < {n}; j++) {{
                  const i32 there = e + j >= low && e + j < high;
                  alone[j] = there ? {f.tensor.load("at + e + (there ? j : low - e)", acc)} : 0;
                }}
                v = vload{n}(0, alone);
              }}
            }}
            vstore{n}(v, 0, &{target});
          }}"""


def _side_by_side(p: Panel, vector_type: str, leading: int) -> str:
    """Statements that load the vectors of term ``k`` from rows of local memory."""
    return " ".join(
        f"const {vector_type} y{v} = *(LOCAL const {vector_type}*)(qb + k * {leading} + {v * p.vector});"
        for v in range(p.vectors)
    )


def registers(acc: str, p: Panel, vector_type: str, load: str, leading: str, first: str) -> str:
    """Statements that multiply one panel of rows by a few vectors of columns, and add to the sums of the tile.

    ``load`` declares the vectors ``y0``... of term ``k``; rows of sums are ``leading`` apart, and new where ``first``.
    """
    cells = [(r, v) for r in range(p.rows) for v in range(p.vectors)]
    multiply = "{s} = fma(x, {y}, {s});" if acc in ("f32", "f64") else "{s} += x * {y};"
    declare = " ".join(f"{vector_type} s{r}_{v} = ({vector_type})(0);" for r, v in cells)
    steps = "\n        ".join(
        f"{{ const {vector_type} x = ({vector_type})(qa[k * {p.rows} + {r}]); "
        + " ".join(multiply.format(y=f"y{v}", s=f"s{r}_{v}") for v in range(p.vectors))
        + " }"
        for r in range(p.rows)
    )
    store = "\n      ".join(
        f"{{ LOCAL {vector_type}* o = (LOCAL {vector_type}*)(sums + (i + {r}) * {leading} + j + {v * p.vector}); "
        f"*o = {first} ? s{r}_{v} : *o + s{r}_{v}; }}"
        for r, v in cells
    )
    return f"""{declare}
      LOCAL const {acc}* const qa = pa + i * {p.tile_k};
      for (i32 k = 0; k < kk; k++) {{
        {load}
        {steps}
      }}
      {store}"""


def store(t: Text, p: Tile) -> str:
    """Statements that write the tile, run by run of the output's columns."""
    value = t.finish(f"sums[i * {p.tile_n} + j + e]", "m0 + i", "n0 + j + e")
    return f"""for (i32 j = 0; j < nn;) {{
    const idx over = (n0 + j) / {t.out_inner}, along = (n0 + j) % {t.out_inner};
    const i32 length = (i32)LEAST((idx)(nn - j), {t.out_inner} - along);
    for (i32 i = 0; i < mm; i++) {{
      const idx at = zc + (m0 + i) * {t.out_m} + over * {t.out_n[0]} + along * {t.out_n[1]}, step = {t.out_n[1]};
      for (i32 e = 0; e < length; e++) {{ {t.out.store("at + e * step", value, t.acc)} }}
    }}
    j += length;
  }}"""
