"""Rows in vectors, on serial devices: along a row, or across rows that lie side by side.

The expressions are those of :class:`Rows`, in which operands and, across rows, all values are vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tesserack_kernelgen.dtypes import ITEMSIZE, name_of
from tesserack_kernelgen.layout import coordinates
from tesserack_kernelgen.templates._folds import DTYPES, NOTHING, those
from tesserack_kernelgen.templates.reduce import Fold
from tesserack_kernelgen.vectors import functions_text, lanes_of, vector_helpers

if TYPE_CHECKING:
    from tesserack.backends import Launch

    from tesserack_kernelgen.kernel import Tensor
    from tesserack_kernelgen.templates._rows import Loop, Rows

__all__ = ["VectorRows", "has_vector_rows"]

_BLOCK = 128  # elements that a lane adds up before it adds them to the whole
_SEVERAL = 2  # accumulators of a row, so that additions need not wait for one another
_EXP = "DEVICE V exp_plain(V x) { return exp_vector(x); }"


def has_vector_rows(rows: Rows) -> bool:
    """Whether all is in memory what it is computed in, or a half of it, and the dialect has functions of vectors."""
    call = rows.kernel.call
    used = [*(x.tensor for x in rows.loaded), *(x.tensor for x in rows.stores)]
    used += [*(x for _, x, _, _ in rows.row_values), *(x for x, _, _, _ in rows.row_stores)]
    if not call.device.serial or not call.card.dialect.vector_functions or rows.has_code:
        return False
    if not all(function.has_vectors(call) for function in rows.kernel.functions):
        return False
    return all(x.dtype in DTYPES.get(rows.c, ()) for x in used)


class VectorRows:
    """The text of one kernel."""

    def __init__(self, rows: Rows, loop: Loop):
        self.rows, self.loop, self.kernel = rows, loop, rows.kernel
        call = self.kernel.call
        self.c = rows.c
        self.lanes = lanes_of(call, rows.c)
        operands = [x for x in (*call.outputs, *call.inputs) if hasattr(x, "strides")]
        touched = sum(x.numel * ITEMSIZE[name_of(x.dtype)] for x in operands)
        self.streamed = 0 < call.device.cache_bytes < 4 / 3 * touched
        self.registered = DTYPES[rows.c][0]

    def along(self) -> Launch:
        """A row, or a few short ones, to an item."""
        rows, kernel, line = self.rows, self.kernel, "\n  "
        beside = rows.group[1]
        steps = [self._reduction(*step) if step[1] else f"const {self.c} {step[0]} = {step[2]};" for step in rows.steps]
        before = [f"const {self.c} {name} = {x.load(at, self.c)};" for name, x, at, _ in rows.row_values]
        row_writes = " ".join(x.store(at, value, self.c) for x, at, _, value in rows.row_stores)
        body = f"""
  const idx length = {kernel.own_index(rows.length)}, inner = {self.loop.sizes[-1]};
  const idx end = {kernel.own_index(rows.count)}, from_row = (idx)GROUP(0) * {beside};
  for (idx row = from_row; row < end && row < from_row + {beside}; ++row) {{
  {coordinates("row", rows.kept, rows.names)}
  {line.join(rows.bases)}
  {line.join(before)}
  {line.join(steps)}
  {self._stored()}
  {row_writes}
  }}"""
        return kernel.launch(body + self._end, (-(-rows.count // beside),), (1,), self._helpers, True)

    def across(self) -> Launch:
        """As many rows as a vector has elements to an item."""
        rows, kernel, n = self.rows, self.kernel, self.lanes
        blocks = -(-rows.beside // n)
        beside, per_line = kernel.own_index(rows.beside), kernel.own_index(blocks)
        text = [f"const V {name} = {self._load(x, at, by)};" for name, x, at, by in rows.row_values]
        for name, opcode, expression in rows.steps:
            text.append(self._fold(name, opcode, expression) if opcode else f"const V {name} = {expression};")
        if rows.stores:
            loads, stores = self._loads("r", beside=True), self._writes("r", beside=True)
            loop = f"for (idx r = 0; r < inner; ++r) {{ {loads} {stores} }}"
            text.append(f"{self.loop.outer()}\n  {loop}\n  {self.loop.end()}")
        for x, at, by, value in rows.row_stores:
            text.append(f"store_{x.dtype}({x.pointer}, {at}, {kernel.index(by)}, many, {value});")
        line = "\n  "
        body = f"""
  const idx length = {kernel.own_index(rows.length)}, inner = {self.loop.sizes[-1]};
  const idx from_row = (idx)GROUP(0) % {per_line} * {n}, row = (idx)GROUP(0) / {per_line} * {beside} + from_row;
  const i32 many = {beside} - from_row < {n} ? (i32)({beside} - from_row) : {n};
  {coordinates("row", rows.kept, rows.names)}
  {line.join(rows.bases)}
  {line.join(text)}"""
        return kernel.launch(body + self._end, (rows.count // rows.beside * blocks,), (1,), self._helpers, True)

    # --- operands ---------------------------------------------------------------------------------------------------

    def _load(self, x: Tensor, at: str, step: int, many: str = "many") -> str:
        if step == 0:
            return f"(V)({x.load(at, self.c)})"
        return f"load_{x.dtype}({x.pointer}, {at}, {self.kernel.index(step)}, {many})"

    def _loads(self, last: str, many: str = "many", beside: bool = False) -> str:
        loop = self.loop
        loads = [
            f"const V {x.name} = {self._load(x.tensor, loop.at(f'at_{x.name}', k, last), step, many)};"
            for k, x in enumerate(self.rows.loaded)
            for step in [x.beside if beside else loop.last_step(k)]
        ]
        return " ".join((*loads, *(f"const V {name} = {value};" for name, value in self.rows.computed)))

    def _writes(self, last: str, beside: bool = False) -> str:
        k, loop, texts = len(self.rows.loaded), self.loop, []
        for number, x in enumerate(self.rows.stores):
            step = x.beside if beside else loop.last_step(k + number)
            way = "stream" if self.streamed and x.tensor.dtype == self.registered and step == 1 else "store"
            at = loop.at(x.base, k + number, last)
            texts.append(f"const V made{number} = {x.expression};")
            given = f"{x.tensor.pointer}, {at}, {self.kernel.index(step)}, many, made{number}"
            texts.append(f"{way}_{x.tensor.dtype}({given});")
        # Outputs might be inputs: all are computed before the first is stored.
        return " ".join(sorted(texts, key=lambda text: not text.startswith("const")))

    @property
    def _end(self) -> str:
        return "\n  STREAM_END;" if self.streamed else ""

    @property
    def _helpers(self) -> str:
        rows = self.rows
        loaded = {*(x.tensor.dtype for x in rows.loaded), *(x.dtype for _, x, _, _ in rows.row_values)}
        stored = {*(x.tensor.dtype for x in rows.stores), *(x.dtype for x, _, _, _ in rows.row_stores)}
        if self.streamed:
            stored.add(self.registered)
        types = vector_helpers(self.kernel.call, NOTHING, loaded, stored, self.streamed, self.lanes, self.c)
        called = any("exp_plain" in text for text in self._expressions())
        fused = self.kernel.functions
        wanted = {name for function in fused for name, *_ in function.program.instructions}
        own = functions_text([*(["exp"] if called else []), *sorted(wanted)], self.c)
        exp = [_EXP] if called else []
        return "\n".join((types, those(self.lanes), own, *exp, *(function.vector_text() for function in fused)))

    def _expressions(self) -> list[str]:
        rows = self.rows
        return [*(text for _, _, text in rows.steps), *(x.expression for x in rows.stores)]

    # --- what is computed -------------------------------------------------------------------------------------------

    def _reduction(self, name: str, opcode: str, expression: str) -> str:
        """Along a row: in parts, so that rounding errors do not grow with the length."""
        fold, n = Fold(opcode, self.c), self.lanes
        parts = [f"part{k}" for k in range(_SEVERAL)]
        several = " ".join(
            f"{{ {self._loads(f'(r + {k * n})', 'LANES')} const V v = {expression}; {fold.add(part, 'v')} }}"
            for k, part in enumerate(parts)
        )
        block = _SEVERAL * n * _BLOCK
        return f"""{self.c} {name};
  {{
  V whole = (V)({fold.start});
  {self.loop.outer()}
  for (idx from = 0; from < inner; from += {block}) {{
    const idx last = inner - from < {block} ? inner : from + {block};
    V {", ".join(f"{part} = (V)({fold.start})" for part in parts)};
    idx r = from;
    for (; r + {_SEVERAL * n} <= last; r += {_SEVERAL * n}) {{ {several} }}
    for (; r < last; r += {n}) {{
      const i32 many = last - r < {n} ? (i32)(last - r) : {n};
      {self._loads("r")} const V every = {expression};
      const V v = (many == {n}) ? every : (THOSE(many) ? every : (V)({fold.start}));
      {fold.add("part0", "v")}
    }}
    {" ".join(fold.add("whole", part) for part in parts)}
  }}
  {self.loop.end()}
  {self.c} each[{n}];
  STORE_V(whole, each);
  {name} = each[0];
  for (i32 j = 1; j < {n}; ++j) {{ {fold.add(name, "each[j]")} }}
  }}"""

    def _stored(self) -> str:
        if not self.rows.stores:
            return ""
        n = self.lanes
        return f"""{self.loop.outer()}
  for (idx r = 0; r < inner; r += {n}) {{
    const i32 many = inner - r < {n} ? (i32)(inner - r) : {n};
    {self._loads("r")} {self._writes("r")}
  }}
  {self.loop.end()}"""

    def _fold(self, name: str, opcode: str, expression: str) -> str:
        """Across rows: as :meth:`_reduction`, every element of the vector for itself."""
        fold = Fold(opcode, self.c)
        return f"""V {name} = (V)({fold.start});
  {self.loop.outer()}
  for (idx from = 0; from < inner; from += {2 * _BLOCK}) {{
    const idx last = inner - from < {2 * _BLOCK} ? inner : from + {2 * _BLOCK};
    V part = (V)({fold.start});
    for (idx r = from; r < last; ++r) {{
      {self._loads("r", beside=True)} const V v = {expression};
      {fold.add("part", "v")}
    }}
    {fold.add(name, "part")}
  }}
  {self.loop.end()}"""
