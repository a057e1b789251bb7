"""Rows: for each of many rows some reductions, one after the other, then what is stored per element or per row.

Softmax, the normalisations, losses and their gradients are lists of such stages. A row is what a group reads
together; its elements may lie anywhere, so that a row can also be a column or a channel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tesserack.backends import Launch

from tesserack_kernelgen.emit import EXP_PLAIN
from tesserack_kernelgen.fused import ComputedTensor, DroppedTensor, FinishedTensor
from tesserack_kernelgen.kernel import Kernel, Tensor
from tesserack_kernelgen.layout import coordinates, merge, offset_text
from tesserack_kernelgen.templates._vector_rows import VectorRows, has_vector_rows
from tesserack_kernelgen.templates.reduce import Fold

__all__ = ["Rows"]

_SERIAL_ROWS = 8  # short rows of one group where items are iterations of a loop
_LONG = 256  # elements from which a row has a group of its own there
_WIDTH = 16  # accumulators of a serial sum over neighbours, which compilers keep in vectors
_PARTIAL = 256  # elements that each adds up before it adds them to the whole
_BESIDE = 16  # rows of one item where elements of neighbouring rows lie side by side, or half as many
_FEW = 3  # of them, from which that pays


@dataclass
class Operand:
    tensor: Tensor
    name: str
    inside: Sequence[int]  # strides of the elements of a row
    beside: int  # from one row to the next


@dataclass
class Store:
    tensor: Tensor
    base: str
    inside: Sequence[int]
    expression: str
    beside: int


class Rows:
    """One kernel over rows; ``kept`` are the sizes that number the rows, ``reduced`` those of a row.

    Expressions are C in the names given to operands; every value is of C type ``c``.
    """

    def __init__(self, kernel: Kernel, kept: Sequence[int], reduced: Sequence[int], c: str):
        self.kernel, self.c = kernel, c
        self.count, self.length = math.prod(kept), math.prod(reduced)
        self.kept, self._reduced, self.beside = kernel.own_indices(kept), tuple(reduced), kept[-1] if kept else 1
        self.names = [f"k{d}" for d in range(len(kept))]
        self.bases: list[str] = []
        self.loaded: list[Operand] = []
        self.computed: list[tuple[str, str]] = []  # name and expression, of every element once all is loaded
        self._code: list[str] = []
        self.row_values: list[tuple[str, Tensor, str, int]] = []  # name, where, its index, step to the next row
        self.steps: list[tuple[str, str, str]] = []  # name, opcode ("" for a plain value), expression
        self.stores: list[Store] = []
        self.row_stores: list[tuple[Tensor, str, int, str]] = []
        device = kernel.call.device
        lanes = 1 if device.serial else min(device.group, max(1 << (self.length - 1).bit_length(), 8))
        rows = _SERIAL_ROWS if self.length < _LONG else 1
        self.group = (lanes, rows if device.serial else max(device.group // lanes, 1))
        #: The function of templates' expressions that is exp.
        self.exp = "exp_plain" if device.serial and c in EXP_PLAIN else "exp"

    # --- operands ---------------------------------------------------------------------------------------------------

    def _base(self, name: str, strides: Sequence[int]) -> str:
        self.bases.append(f"const idx at_{name} = {offset_text(self.names, self.kernel.own_indices(strides))};")
        return f"at_{name}"

    def element(self, name: str, tensor: Tensor, kept: Sequence[int], reduced: Sequence[int]) -> None:
        """An operand with an element for every element of a row; ``name`` is its value in expressions."""
        if isinstance(tensor, ComputedTensor):
            self.computed.append((name, tensor.function.call(self._parts(name, tensor.args, kept, reduced))))
            return
        self._base(name, kept)
        self.loaded.append(Operand(tensor, name, tuple(reduced), last_of(kept)))

    def _parts(self, name: str, args: Sequence[Tensor | str], kept: Sequence[int], reduced: Sequence[int]) -> list[str]:
        """Names of what a program is of, tensors that lie alike and numbers."""
        for k, x in enumerate(args):
            if not isinstance(x, str):
                self.element(f"{name}_{k}", x, kept, reduced)
        return [x if isinstance(x, str) else f"{name}_{k}" for k, x in enumerate(args)]

    def row(self, name: str, tensor: Tensor, kept: Sequence[int]) -> None:
        """An operand with one element per row."""
        self.row_values.append((name, tensor, self._base(name, kept), last_of(kept)))

    def code(self, statements: str) -> None:
        """Statements for every element, once its operands are loaded; ``r`` numbers those of rows of one dim."""
        self._code.append(statements)

    @property
    def has_code(self) -> bool:
        """Whether statements stand in the loops."""
        return bool(self._code)

    # --- what is computed -------------------------------------------------------------------------------------------

    def stage(self, name: str, opcode: str, expression: str) -> None:
        """A reduction over the row, "sum" or "max", of an expression of operands and of earlier stages."""
        self.steps.append((name, opcode, expression))

    def let(self, name: str, expression: str) -> None:
        """A value per row."""
        self.steps.append((name, "", expression))

    def store(self, tensor: Tensor, kept: Sequence[int], reduced: Sequence[int], expression: str) -> None:
        """An output with an element for every element of a row."""
        if isinstance(tensor, DroppedTensor):
            return None
        if isinstance(tensor, FinishedTensor):
            others = self._parts(f"after{len(self.stores)}", tensor.args, kept, reduced)
            return self.store(tensor.to, kept, reduced, tensor.finished(expression, others))
        base = self._base(f"out{len(self.stores)}", kept)
        self.stores.append(Store(tensor, base, tuple(reduced), expression, last_of(kept)))

    def store_row(self, tensor: Tensor, kept: Sequence[int], expression: str) -> None:
        """An output with one element per row."""
        if isinstance(tensor, DroppedTensor):
            return
        at = self._base(f"row{len(self.row_stores)}", kept)
        self.row_stores.append((tensor, at, last_of(kept), expression))

    # --- text -------------------------------------------------------------------------------------------------------

    def _loads(self, loop: Loop, last: str, extra: str = "", beside: str = "") -> str:
        lines = [
            f"    const {self.c} {x.name} = {x.tensor.load(loop.at(base, k, last, extra), self.c)};"
            for k, x in enumerate(self.loaded)
            for base in [_moved(f"at_{x.name}", x.beside, beside)]
        ]
        return "\n".join((*lines, *(f"    const {self.c} {name} = {value};" for name, value in self.computed)))

    def _writes(self, loop: Loop, last: str, beside: str = "") -> str:
        k = len(self.loaded)
        return " ".join(
            x.tensor.store(loop.at(_moved(x.base, x.beside, beside), k + number, last), x.expression, self.c)
            for number, x in enumerate(self.stores)
        )

    def _row_writes(self, beside: str = "") -> str:
        return " ".join(x.store(_moved(at, by, beside), value, self.c) for x, at, by, value in self.row_stores)

    def _together_loop(self, loop: Loop, inner: str) -> str:
        """A loop over the elements of a row by all lanes; ``r`` numbers them."""
        return f"""for (idx r = LANE(0); r < length; r += {self.group[0]}) {{
    {coordinates("r", loop.sizes, loop.names)}
{self._loads(loop, loop.names[-1])}
    {" ".join(self._code)}
    {inner}
  }}"""

    def _reduction(self, loop: Loop, name: str, opcode: str, expression: str) -> str:
        fold = Fold(opcode, self.c)
        value = f"const {self.c} v = {expression};"
        if self.group[0] == 1:
            text = self._alone(loop, fold, value)
        else:
            text = f"{self.c} acc = {fold.start};\n  "
            text += self._together_loop(loop, f"{value} {fold.add('acc', 'v')}") + f"\n  {self._together(fold)}"
        return f"""{self.c} {name};
  {{
  {text}
  {name} = acc;
  }}"""

    def _alone(self, loop: Loop, fold: Fold, value: str) -> str:
        """One item's reduction: in parts, so that rounding errors do not grow with the length."""
        width = loop.width
        code = " ".join(self._code)
        each = f"for (i32 j = 0; j < {width}; ++j)"
        one = f"{self._loads(loop, 'r')}\n    {code} {value} {fold.add('part[0]', 'v')}"
        many = f"""for (; r + {width} <= last; r += {width})
      UNROLL
      {each} {{
    {self._loads(loop, "r", "j")}
    {value} {fold.add("part[j]", "v")}
      }}"""
        return f"""{self.c} whole[{width}];
  {each} whole[j] = {fold.start};
  {loop.outer()}
  for (idx from = 0; from < inner; from += {width * _PARTIAL}) {{
    const idx last = inner - from < {width * _PARTIAL} ? inner : from + {width * _PARTIAL};
    {self.c} part[{width}];
    {each} part[j] = {fold.start};
    idx r = from;
    {many if width > 1 else ""}
    for (; r < last; ++r) {{
    {one}
    }}
    {each} {{ {fold.add("whole[j]", "part[j]")} }}
  }}
  {loop.end()}
  {self.c} acc = {fold.start};
  {each} {{ {fold.add("acc", "whole[j]")} }}"""

    def _stored(self, loop: Loop) -> str:
        """The loop that stores an element for every element of a row."""
        if not self.stores:
            return ""
        if self.group[0] > 1:
            return self._together_loop(loop, self._writes(loop, loop.names[-1]))
        width, k = loop.width, len(self.loaded)
        names = [f"made{number}" for number in range(len(self.stores))]
        arrays = " ".join(f"{self.c} {name}[{width}];" for name in names)
        made = " ".join(f"{name}[j] = {x.expression};" for name, x in zip(names, self.stores, strict=True))
        kept = " ".join(
            x.tensor.store(loop.at(x.base, k + number, "r", "j"), f"{name}[j]", self.c)
            for number, (name, x) in enumerate(zip(names, self.stores, strict=True))
        )
        # Outputs might be inputs, for all that compilers know: what is computed together is stored together.
        many = f"""for (; r + {width} <= inner; r += {width}) {{
    {arrays}
    for (i32 j = 0; j < {width}; ++j) {{
{self._loads(loop, "r", "j")}
    {made}
    }}
    for (i32 j = 0; j < {width}; ++j) {{ {kept} }}
  }}"""
        return f"""{loop.outer()}
  idx r = 0;
  {many if width > 1 else ""}
  for (; r < inner; ++r) {{
{self._loads(loop, "r")}
    {" ".join(self._code)}
    {self._writes(loop, "r")}
  }}
  {loop.end()}"""

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

    def strides(self) -> list[Sequence[int]]:
        return [*(x.inside for x in self.loaded), *(x.inside for x in self.stores)]

    def launch(self, helpers: str = "") -> Launch:
        """The launch of the kernel."""
        across, vectors = self._side_by_side(), has_vector_rows(self)
        loop = Loop(self.kernel, self._reduced, self.strides(), not self._code and not across)
        if vectors and (self.beside >= _BESIDE if across else loop.width > 1):  # parts of vectors are slow
            made = VectorRows(self, loop)
            return made.across() if across else made.along()
        helpers = "\n".join(filter(None, (helpers, EXP_PLAIN[self.c] if self.exp == "exp_plain" else "")))
        if across:
            return self._columns(helpers, loop)
        lanes, rows = self.group
        steps = [
            self._reduction(loop, *step) if step[1] else f"const {self.c} {step[0]} = {step[2]};" for step in self.steps
        ]
        writes = self._stored(loop)
        row_writes = f"if (LANE(0) == 0) {{ {self._row_writes()} }}" if self.row_stores else ""
        before = [f"const {self.c} {name} = {x.load(at, self.c)};" for name, x, at, _ in self.row_values]
        line = "\n  "
        body = f"""
  {f"LOCAL_ARRAY({self.c}, tree, {lanes * rows});" if lanes > 1 else ""}
  const idx number = (idx)GROUP(0) * {rows} + LANE(1), length = {self.kernel.own_index(self.length)};
  const idx inner = {loop.sizes[-1]};
  const i32 live = number < {self.kernel.own_index(self.count)};
  const idx row = live ? number : 0;
  {coordinates("row", self.kept, self.names)}
  {line.join(self.bases)}
  {line.join(before)}
  {line.join(steps)}
  if (live) {{
  {writes}
  {row_writes}
  }}"""
        return self.kernel.launch(body, (-(-self.count // rows),), (lanes, rows), helpers)

    # --- rows side by side ------------------------------------------------------------------------------------------

    def _side_by_side(self) -> bool:
        """Whether an item had better take neighbouring rows together: their elements are near, and a row's are not."""
        operands: list[Operand | Store] = [*self.loaded, *self.stores]
        if not self.kernel.call.device.serial or self._code or self.beside < _FEW:
            return False
        if any(x.beside not in (0, 1) for x in operands):
            return False
        apart = [x for x in operands if last_of(x.inside) not in (0, 1) and x.beside == 1]
        return bool(apart) and all(last_of(x.inside) != 1 or x.beside == 0 for x in operands)

    def _columns(self, helpers: str, loop: Loop) -> Launch:
        """An item takes ``n`` rows, of every one of which all values are elements of arrays."""
        kernel, n = self.kernel, _BESIDE if self.beside > _BESIDE // 2 else _BESIDE // 2
        blocks = -(-self.beside // n)
        beside, per_line = kernel.own_index(self.beside), kernel.own_index(blocks)
        known: list[str] = []
        text = []

        def lanes(statements: str) -> str:
            values = " ".join(f"const {self.c} {name} = {name}_[j];" for name in known)
            each = f"{{ {values} {statements} }}"
            # A condition within a loop of known length becomes masks of vectors; a shorter loop would not be vectors.
            return f"if (many == {n}) {{ UNROLL for (i32 j = 0; j < {n}; ++j) {each} }}\n" + (
                f"    else for (i32 j = 0; j < {n}; ++j) if (j < many) {each}"
            )

        for name, x, at, by in self.row_values:
            value = x.load(_moved(at, by, "j"), self.c)
            text.append(f"{self.c} {name}_[{n}];\n  {lanes(f'{name}_[j] = {value};')}")
            known.append(name)
        for name, opcode, expression in self.steps:
            if opcode:
                fold, all_lanes = Fold(opcode, self.c), f"for (i32 j = 0; j < {n}; ++j)"
                value = f"{self._loads(loop, 'r', beside='j')} const {self.c} v = {expression};"
                text.append(f"""{self.c} {name}_[{n}];
  {all_lanes} {name}_[j] = {fold.start};
  {loop.outer()}
  for (idx from = 0; from < inner; from += {_PARTIAL}) {{
    const idx last = inner - from < {_PARTIAL} ? inner : from + {_PARTIAL};
    {self.c} part[{n}];
    {all_lanes} part[j] = {fold.start};
    for (idx r = from; r < last; ++r)
    {lanes(f"{value} {fold.add('part[j]', 'v')}")}
    {all_lanes} {{ {fold.add(f"{name}_[j]", "part[j]")} }}
  }}
  {loop.end()}""")
            else:
                text.append(f"{self.c} {name}_[{n}];\n  {lanes(f'{name}_[j] = {expression};')}")
            known.append(name)
        if self.stores:
            each = f"{self._loads(loop, 'r', beside='j')} {self._writes(loop, 'r', 'j')}"
            text.append(f"{loop.outer()}\n  for (idx r = 0; r < inner; ++r)\n    {lanes(each)}\n  {loop.end()}")
        if self.row_stores:
            text.append(lanes(self._row_writes("j")))
        line = "\n  "
        body = f"""
  const idx length = {kernel.own_index(self.length)}, inner = {loop.sizes[-1]};
  const idx from_row = (idx)GROUP(0) % {per_line} * {n}, row = (idx)GROUP(0) / {per_line} * {beside} + from_row;
  const i32 many = {beside} - from_row < {n} ? (i32)({beside} - from_row) : {n};
  {coordinates("row", self.kept, self.names)}
  {line.join(self.bases)}
  {line.join(text)}"""
        return kernel.launch(body, (self.count // self.beside * blocks,), (1,), helpers)


def last_of(steps: Sequence[int]) -> int:
    return steps[-1] if steps else 0


def _moved(at: str, step: int, beside: str) -> str:
    """An index, moved on by so many rows."""
    return f"{at} + {beside}" if beside and step else at


class Loop:
    """The elements of a row: dims merged where every operand allows it, and text for one loop per row or two.

    ``width``: how many neighbours are taken at once by an item that has a row of its own, 1 where they do not lie side
    by side. ``plain``: no statements stand in the loop that know the elements by number.
    """

    def __init__(self, kernel: Kernel, sizes: Sequence[int], strides: Sequence[Sequence[int]], plain: bool):
        merged, steps = merge(sizes, *strides)
        if not merged:
            merged, steps = (1,), [(0,) for _ in strides]
        near = all(step[-1] in (0, 1) for step in steps)
        serial = kernel.call.device.serial
        self.width = _WIDTH if plain and near and serial else 1
        if serial and len(merged) == 1:  # one line has the text of several
            merged, steps = (1, *merged), [(0, *step) for step in steps]
        self._last = [step[-1] for step in steps]
        self.names = [f"e{d}" for d in range(len(merged))]
        self.sizes = kernel.own_indices(merged)
        self._outer = kernel.own_index(math.prod(merged[:-1]))
        self._steps = [[*kernel.own_indices(step[:-1]), kernel.index(step[-1])] for step in steps]

    def at(self, base: str, operand: int, last: str, extra: str = "") -> str:
        """Where an element of an operand is; ``last`` is its index along the last dim, to which ``extra`` is added."""
        index = f"({last} + {extra})" if extra else last
        return f"{base} + {offset_text([*self.names[:-1], index], self._steps[operand])}"

    def last_step(self, operand: int) -> int:
        """From one element of an operand to the next along the last dim."""
        return self._last[operand]

    def outer(self) -> str:
        """The beginning of a loop over all dims but the last."""
        return f"for (idx o = 0; o < {self._outer}; ++o) {{ {coordinates('o', self.sizes[:-1], self.names[:-1])}"

    def end(self) -> str:
        """The end of the loop of :meth:`outer`."""
        return "}"
