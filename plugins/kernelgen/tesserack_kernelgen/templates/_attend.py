"""What the kernels of attention are made of: rows that stay in local memory, and tiles of the other side that pass.

On a serial device an item does all rows of a block, and products are written in vectors; else a group shares them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tesserack_kernelgen.kernel import Kernel, Tensor

__all__ = ["Attend", "choose"]

_LANES = 128


class Attend:
    """Text for blocks of ``rows`` against tiles of ``tile``, in numbers of C type ``c``."""

    def __init__(self, kernel: Kernel, c: str, rows: int, tile: int):
        self.kernel, self.c, self.rows, self.tile = kernel, c, rows, tile
        device = kernel.call.device
        self.serial = device.serial
        self.group = 1 if self.serial else _LANES
        self.across = 1 if self.serial else _LANES // rows  # items of one row
        self.lanes = lanes_of(device, c)
        self.vector = kernel.call.card.dialect.vector(c, self.lanes) if self.serial else c
        self.functions = self.serial and kernel.call.card.dialect.vector_functions
        self.barrier = "" if self.serial else "BARRIER;"
        self.place = f"const i32 line = LANE(0) / {self.across}, column = LANE(0) % {self.across};"
        if self.serial:
            self.place = ""

    # --- memory -----------------------------------------------------------------------------------------------------

    def array(self, name: str, count: int) -> str:
        """Local memory of ``count`` numbers, aligned for vectors."""
        if not self.serial:
            return f"LOCAL_ARRAY({self.c}, {name}, {count});"
        many = -(-count // self.lanes)
        return f"LOCAL_ARRAY({self.vector}, {name}_, {many}); LOCAL {self.c}* const {name} = (LOCAL {self.c}*){name}_;"

    def leading(self, depth: int) -> int:
        """Between rows in local memory: whole vectors, or one more than there are, for other banks."""
        return -(-depth // self.lanes) * self.lanes if self.serial else depth + 1

    def each(self, rows: int, columns: int, body: str) -> str:
        """A loop over ``r`` and ``e``, shared by the group."""
        if self.serial:
            return f"for (i32 r = 0; r < {rows}; ++r) for (i32 e = 0; e < {columns}; ++e) {{ {body} }}"
        return (
            f"for (i32 n = LANE(0); n < {rows * columns}; n += {self.group}) "
            f"{{ const i32 r = n / {columns}, e = n % {columns}; {body} }}"
        )

    def each_row(self, rows: int, body: str) -> str:
        """A loop over ``r``, shared by the group."""
        return f"for (i32 r = LANE(0); r < {rows}; r += {self.group}) {{ {body} }}"

    def fetch(
        self, names: Sequence[str], tensor: Tensor, base: str, first: str, limit: str, rows: int, depth: int, by: Any
    ) -> str:
        """Rows from ``first`` on into arrays, zeros beyond ``limit``; an array whose name ends with t is turned."""
        row, column = by
        wide = self.leading(depth)
        to = {True: f"e * {self.tile} + r", False: f"r * {wide} + e"}
        value = tensor.load(f"{base} + ({first} + r) * {row} + e * {column}", self.c)
        stores = " ".join(f"{name}[{to[name.endswith('t')]}] = v;" for name in names)
        width = wide if self.serial and not any(name.endswith("t") for name in names) else depth
        inside = f"{first} + r < {limit}" + (f" && e < {depth}" if width != depth else "")
        if width == depth and self.serial and wide != depth and any(not name.endswith("t") for name in names):
            width, inside = wide, f"{first} + r < {limit} && e < {depth}"
            stores = " ".join(
                f"if (e < {depth}) {name}[{to[True]}] = v;" if name.endswith("t") else f"{name}[{to[False]}] = v;"
                for name in names
            )
        return self.each(rows, width, f"const {self.c} v = {inside} ? {value} : 0; {stores}")

    # --- products ---------------------------------------------------------------------------------------------------

    def dot(self, into: str, rows: str, tile: str, depth: int) -> str:
        """``into[r, j]`` = sum over e of ``rows[r, e] * tile[j, e]``."""
        if not self.serial:
            wide = self.leading(depth)
            return f"""for (i32 j = column; j < {self.tile}; j += {self.across}) {{
      {self.c} s = 0;
      for (i32 e = 0; e < {depth}; ++e) s = fma({rows}[line * {wide} + e], {tile}[j * {wide} + e], s);
      {into}[line * {self.tile} + j] = s;
    }}"""
        n = self.tile // self.lanes
        return self._blocked(
            n, depth, "e",
            left=lambda i: f"{rows}[(r + {i}) * {self.leading(depth)} + e]",
            right=lambda v: f"{tile} + e * {self.tile} + {v * self.lanes}",
            start=lambda i, v: f"({self.vector})(0)",
            target=lambda i, v: f"{into} + (r + {i}) * {self.tile} + {v * self.lanes}",
        )  # fmt: skip

    def add(self, sums: str, weights: str, tile: str, depth: int, shrink: str = "") -> str:
        """``sums[r, e]``, times ``shrink[r]`` if it is given, plus the sum over j of ``weights[r, j] * tile[j, e]``."""
        wide = self.leading(depth)
        if not self.serial:
            return f"""UNROLL for (i32 n = 0; n < {self.held(depth)}; ++n) {{
      const i32 e = column + n * {self.across};
      if (e < {depth}) {{
        {self.c} s = {sums}[n]{f" * {shrink}[line]" if shrink else ""};
        for (i32 j = 0; j < {self.tile}; ++j) s = fma({weights}[line * {self.tile} + j], {tile}[j * {wide} + e], s);
        {sums}[n] = s;
      }}
    }}"""
        vectors = wide // self.lanes
        n = 2 if vectors % 2 == 0 else 1

        def begin(i: int, v: int) -> str:
            held = f"*(LOCAL const {self.vector}*)({sums} + (r + {i}) * {wide} + c + {v * self.lanes})"
            return f"{held} * ({self.vector})({shrink}[r + {i}])" if shrink else held

        inner = self._blocked(
            n, self.tile, "j",
            left=lambda i: f"{weights}[(r + {i}) * {self.tile} + j]",
            right=lambda v: f"{tile} + j * {wide} + c + {v * self.lanes}",
            start=begin,
            target=lambda i, v: f"{sums} + (r + {i}) * {wide} + c + {v * self.lanes}",
        )  # fmt: skip
        return f"for (i32 c = 0; c < {wide}; c += {n * self.lanes}) {{ {inner} }}"

    def _blocked(
        self,
        vectors: int,
        steps: int,
        step: str,
        left: Callable[[int], str],
        right: Callable[[int], str],
        start: Callable[[int, int], str],
        target: Callable[[int, int], str],
    ) -> str:
        """Four rows by a few vectors in registers."""
        v, cells = self.vector, [(i, k) for i in range(4) for k in range(vectors)]
        declare = " ".join(f"{v} s{i}_{k} = {start(i, k)};" for i, k in cells)
        loads = " ".join(f"const {v} y{k} = *(LOCAL const {v}*)({right(k)});" for k in range(vectors))
        products = " ".join(
            f"{{ const {v} x = ({v})({left(i)}); "
            + " ".join(f"s{i}_{k} = fma(x, y{k}, s{i}_{k});" for k in range(vectors))
            + " }"
            for i in range(4)
        )
        stores = " ".join(f"*(LOCAL {v}*)({target(i, k)}) = s{i}_{k};" for i, k in cells)
        return f"""for (i32 r = 0; r < {self.rows}; r += 4) {{
      {declare}
      for (i32 {step} = 0; {step} < {steps}; ++{step}) {{ {loads} {products} }}
      {stores}
    }}"""

    def held(self, depth: int) -> int:
        """Sums that an item of a group has in registers."""
        return -(-depth // self.across)

    def sums(self, name: str, depth: int) -> str:
        """Sums of a block, zero at first."""
        if self.serial:
            clear = f"for (i32 n = 0; n < {self.rows * self.leading(depth)}; ++n) {name}[n] = 0;"
            return f"{self.array(name, self.rows * self.leading(depth))} {clear}"
        held = self.held(depth)
        return f"{self.c} {name}[{held}]; UNROLL for (i32 n = 0; n < {held}; ++n) {name}[n] = 0;"

    def store(self, out: Tensor, base: str, first: str, limit: str, sums: str, depth: int, by: Any, value: str) -> str:
        """Sums to memory; ``value`` is an expression in ``x`` and the row ``r``."""
        at = f"{base} + ({first} + r) * {by[0]} + e * {by[1]}"
        if self.serial:
            inner = f"const {self.c} x = {sums}[r * {self.leading(depth)} + e]; {out.store(at, value, self.c)}"
            rows = f"for (i32 r = 0; r < {self.rows} && {first} + r < {limit}; ++r)"
            return f"{rows} for (i32 e = 0; e < {depth}; ++e) {{ {inner} }}"
        return f"""UNROLL for (i32 n = 0; n < {self.held(depth)}; ++n) {{
    const i32 e = column + n * {self.across}, r = line;
    if (e < {depth} && {first} + r < {limit}) {{ const {self.c} x = {sums}[n]; {out.store(at, value, self.c)} }}
  }}"""

    def scores(self, statements: Callable[[str, str], str]) -> str:
        """A loop over all scores ``at`` of a block and tile, in vectors where there are functions of them.

        ``statements`` get the C type, and ``j``, the column of the first.
        """
        size, v = self.rows * self.tile, self.vector
        if self.functions:
            text = f"const i32 r = at / {self.tile}, j = at % {self.tile}; {statements(v, 'j')}"
            return f"for (i32 at = 0; at < {size}; at += {self.lanes}) {{ {text} }}"
        text = f"const i32 r = at / {self.tile}, j = at % {self.tile}; {statements(self.c, 'j')}"
        return f"for (i32 at = LANE(0); at < {size}; at += {self.group}) {{ {text} }}"

    def at(self, array: str, index: str, c: str) -> str:
        """The element of an array, or the vector from there on."""
        return f"{array}[{index}]" if c == self.c else f"*(LOCAL {c}*)({array} + {index})"


def lanes_of(device: Any, c: str) -> int:
    """Elements of a vector on a serial device."""
    return max(2, min(16, device.simd_bytes // int(c[1:]) * 8)) if device.serial else 1


def choose(device: Any, c: str, length: int, count: Callable[[int, int, int], int]) -> tuple[int, int] | None:
    """Rows and tile that fit into local memory; ``count`` tells the numbers, of rows, tile and lanes."""
    lanes = lanes_of(device, c)
    if device.serial:
        options = [(rows, tile * lanes) for rows in ((64, 16, 4) if length > 16 else (16, 4)) for tile in (2, 1)]
    else:
        options = [(16, 32), (16, 16), (8, 16), (8, 8), (4, 8)] if device.group >= _LANES else []
    for rows, tile in options:
        if count(rows, tile, lanes) * int(c[1:]) // 8 + 64 <= device.local_bytes:
            return rows, tile
    return None
