"""Rows: for each of many rows some reductions, one after the other, then what is stored per element or per row.

Softmax, the normalisations, losses and their gradients are lists of such stages. A row is what a group reads
together; its elements may lie anywhere, so that a row can also be a column or a channel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tesserack.backends import Launch

from tesserack_kernelgen.kernel import Kernel, Tensor
from tesserack_kernelgen.layout import coordinates, offset_text
from tesserack_kernelgen.templates.reduce import Fold

__all__ = ["Rows"]

_SERIAL_ROWS = 8  # rows of one group where items are iterations of a loop
_PARTIAL = 256  # elements that a serial sum adds up before it adds them to the whole


@dataclass
class _Operand:
    tensor: Tensor
    name: str
    inside: list[str]  # strides of the elements of a row


class Rows:
    """One kernel over rows; ``kept`` are the sizes that number the rows, ``reduced`` those of a row.

    Expressions are C in the names given to operands; every value is of C type ``c``.
    """

    def __init__(self, kernel: Kernel, kept: Sequence[int], reduced: Sequence[int], c: str):
        self.kernel, self.c = kernel, c
        self.count, self.length = math.prod(kept), math.prod(reduced)
        self._kept, self._reduced = kernel.own_indices(kept), kernel.own_indices(reduced)
        self._rows = [f"k{d}" for d in range(len(kept))]
        self._elements = [f"e{d}" for d in range(len(reduced))]
        self._bases: list[str] = []
        self._loaded: list[_Operand] = []
        self._code: list[str] = []
        self._before: list[str] = []
        self._steps: list[tuple[str, str, str]] = []  # name, opcode ("" for a plain value), expression
        self._stores: list[str] = []
        self._row_stores: list[str] = []
        device = kernel.call.device
        lanes = 1 if device.serial else min(device.group, max(1 << (self.length - 1).bit_length(), 8))
        self.group = (lanes, _SERIAL_ROWS if device.serial else max(device.group // lanes, 1))

    # --- operands ---------------------------------------------------------------------------------------------------

    def _base(self, name: str, strides: Sequence[int]) -> str:
        self._bases.append(f"const idx at_{name} = {offset_text(self._rows, self.kernel.own_indices(strides))};")
        return f"at_{name}"

    def element(self, name: str, tensor: Tensor, kept: Sequence[int], reduced: Sequence[int]) -> None:
        """An operand with an element for every element of a row; ``name`` is its value in expressions."""
        self._base(name, kept)
        self._loaded.append(_Operand(tensor, name, self.kernel.indices(reduced)))

    def row(self, name: str, tensor: Tensor, kept: Sequence[int]) -> None:
        """An operand with one element per row."""
        at = self._base(name, kept)
        self._before.append(f"const {self.c} {name} = {tensor.load(at, self.c)};")

    def code(self, statements: str) -> None:
        """Statements for every element, after the operands are loaded; ``r`` numbers the element."""
        self._code.append(statements)

    # --- what is computed -------------------------------------------------------------------------------------------

    def stage(self, name: str, opcode: str, expression: str) -> None:
        """A reduction over the row, "sum" or "max", of an expression of operands and of earlier stages."""
        self._steps.append((name, opcode, expression))

    def let(self, name: str, expression: str) -> None:
        """A value per row."""
        self._steps.append((name, "", expression))

    def store(self, tensor: Tensor, kept: Sequence[int], reduced: Sequence[int], expression: str) -> None:
        """An output with an element for every element of a row."""
        base = self._base(f"out{len(self._stores)}", kept)
        at = f"{base} + {offset_text(self._elements, self.kernel.indices(reduced))}"
        self._stores.append(tensor.store(at, expression, self.c))

    def store_row(self, tensor: Tensor, kept: Sequence[int], expression: str) -> None:
        """An output with one element per row."""
        at = self._base(f"row{len(self._row_stores)}", kept)
        self._row_stores.append(tensor.store(at, expression, self.c))

    # --- text -------------------------------------------------------------------------------------------------------

    def _loop(self, inner: str) -> str:
        loads = "\n".join(
            f"    const {self.c} {x.name} = "
            f"{x.tensor.load(f'at_{x.name} + {offset_text(self._elements, x.inside)}', self.c)};"
            for x in self._loaded
        )
        return f"""for (idx r = LANE(0); r < length; r += {self.group[0]}) {{
    {coordinates("r", self._reduced, self._elements)}
{loads}
    {" ".join(self._code)}
    {inner}
  }}"""

    def _reduction(self, name: str, opcode: str, expression: str) -> str:
        fold, lanes = Fold(opcode, self.c), self.group[0]
        if lanes > 1:
            loop = self._loop(f"const {self.c} v = {expression}; {fold.add('acc', 'v')}")
        else:  # sums in parts, so that rounding errors do not grow with the length
            add = fold.add("part", "v")
            flush = f"if (r % {_PARTIAL} == {_PARTIAL - 1}) {{ {fold.add('acc', 'part')} part = {fold.start}; }}"
            loop = f"{self.c} part = {fold.start};\n  " + self._loop(f"const {self.c} v = {expression}; {add} {flush}")
            loop += f"\n  {fold.add('acc', 'part')}"
        return f"""{self.c} {name};
  {{
  {self.c} acc = {fold.start};
  {loop}
  {self._together(fold)}
  {name} = acc;
  }}"""

    def _together(self, fold: Fold) -> str:
        lanes = self.group[0]
        if lanes == 1:
            return ""
        return f"""const i32 l = LANE(1) * {lanes} + LANE(0);
  tree[l] = acc;
  BARRIER;
  for (i32 apart = {lanes // 2}; apart > 0; apart /= 2) {{
    if (LANE(0) < apart) {{ {fold.add("tree[l]", "tree[l + apart]")} }}
    BARRIER;
  }}
  acc = tree[LANE(1) * {lanes}];
  BARRIER;"""

    def launch(self, helpers: str = "") -> Launch:
        """The launch of the kernel."""
        lanes, rows = self.group
        steps = [
            self._reduction(*step) if step[1] else f"const {self.c} {step[0]} = {step[2]};" for step in self._steps
        ]
        writes = self._loop(" ".join(self._stores)) if self._stores else ""
        row_writes = f"if (LANE(0) == 0) {{ {' '.join(self._row_stores)} }}" if self._row_stores else ""
        line = "\n  "
        body = f"""
  {f"LOCAL_ARRAY({self.c}, tree, {lanes * rows});" if lanes > 1 else ""}
  const idx number = (idx)GROUP(0) * {rows} + LANE(1), length = {self.kernel.own_index(self.length)};
  const i32 live = number < {self.kernel.own_index(self.count)};
  const idx row = live ? number : 0;
  {coordinates("row", self._kept, self._rows)}
  {line.join(self._bases)}
  {line.join(self._before)}
  {line.join(steps)}
  if (live) {{
  {writes}
  {row_writes}
  }}"""
        return self.kernel.launch(body, (-(-self.count // rows),), (lanes, rows), helpers)
