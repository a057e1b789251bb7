"""Reductions over the last dims: along memory, across it, and in two stages where there are few outputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import ITEMSIZE, REAL, STORAGE, accumulator, name_of, register
from tesserack_kernelgen.emit import constant, program_text
from tesserack_kernelgen.kernel import Kernel, Tensor
from tesserack_kernelgen.layout import coordinates, merge, offset_text
from tesserack_kernelgen.templates._folds import Folding, has_folds
from tesserack_kernelgen.templates._registry import template

__all__ = ["DTYPE", "Fold", "highest", "lowest", "reduce"]

_CHUNK = 8192  # elements that one group adds up before there is a second stage
_SHORT = 64  # rows up to here belong to one item
_SHORT_OF_VECTORS = 16  # the same where they are added up in vectors
_ITEM = 2048  # elements worth an item of a serial device
_BESIDE = 8  # vectors of neighbouring outputs that an item of a serial device has, where there are so many
#: Of each C type the dtype that stores it.
DTYPE = {c: name for name, c in STORAGE.items() if name not in ("bool", "float16", "bfloat16")}


def lowest(c: str) -> str:
    """The least value of a C type."""
    if c in REAL:
        return constant(-math.inf, c)
    return "0" if c == "u64" else constant(-(2 ** (int(c[1:]) - 1)), c)


def highest(c: str) -> str:
    """The greatest value of a C type."""
    if c in REAL:
        return constant(math.inf, c)
    return "(~(u64)0)" if c == "u64" else constant(2 ** (int(c[1:]) - 1) - 1, c)


@dataclass(frozen=True)
class Fold:
    """What a reduction keeps: a value of C type ``c``, and for argmax and argmin where it stood."""

    opcode: str
    c: str

    @property
    def located(self) -> bool:
        """Whether positions are kept."""
        return self.opcode.startswith("arg")

    @property
    def start(self) -> str:
        """The value before the first element."""
        if self.opcode in ("sum", "any"):
            return "0"
        if self.opcode in ("prod", "all"):
            return "1"
        return lowest(self.c) if self.opcode.endswith("max") else highest(self.c)

    def add(self, acc: str, value: str, at: str = "", position: str = "") -> str:
        """Statements that take a value, the expression of a variable, into an accumulator."""
        if self.opcode == "sum":
            return f"{acc} += {value};"
        if self.opcode == "prod":
            return f"{acc} *= {value};"
        if self.opcode == "any":
            return f"{acc} |= ({value} != 0);"
        if self.opcode == "all":
            return f"{acc} &= ({value} != 0);"
        sign = ">" if self.opcode.endswith("max") else "<"
        nan = self.c in REAL
        better = f"{value} {sign} {acc}" + (f" || ({value} != {value} && {acc} == {acc})" if nan else "")
        if not self.located:  # without a branch, which compilers would not turn into vectors
            of_nan = f" | ({value} != {value})" if nan else ""
            return f"{acc} = (({value} {sign} {acc}){of_nan}) ? {value} : {acc};"
        same = f"{value} == {acc}" + (f" || ({value} != {value} && {acc} != {acc})" if nan else "")
        return f"if ({better} || (({same}) && {position} < {at})) {{ {acc} = {value}; {at} = {position}; }}"

    def follow(self, acc: str, value: str, at: str, position: str) -> str:
        """As :meth:`add`, of positions that only grow and accumulators that hold the first: without a branch."""
        if not self.located:
            return self.add(acc, value)
        better = f"({value} {'>' if self.opcode == 'argmax' else '<'} {acc})"
        if self.c in REAL:
            better += f" | (({value} != {value}) & ({acc} == {acc}))"
        return f"{{ const i32 found = {better}; {acc} = found ? {value} : {acc}; {at} = found ? {position} : {at}; }}"


@dataclass(frozen=True)
class _Shape:
    """Sizes and strides of one reduction: kept dims, reduced ones, and the output's strides."""

    kept: tuple[int, ...]
    out_strides: tuple[int, ...]
    kept_strides: tuple[int, ...]
    reduced: tuple[int, ...]
    reduced_strides: tuple[int, ...]

    @property
    def outputs(self) -> int:
        return math.prod(self.kept)

    @property
    def length(self) -> int:
        return math.prod(self.reduced)


def _shape(call: Call) -> _Shape:
    out, x, ndims = call.outputs[0], call.inputs[0], call.params[0]
    at = x.ndim - ndims
    kept, (out_strides, kept_strides) = merge(x.shape[:at], out.strides[:at], x.strides[:at])
    reduced, (reduced_strides,) = merge(x.shape[at:], x.strides[at:])
    # One output, or one element each, has the text of several: a kernel of its own would be compiled for nothing.
    if not kept:
        kept, out_strides, kept_strides = (1,), (1,), (0,)
    if not reduced:
        reduced, reduced_strides = (1,), (1,)
    return _Shape(kept, out_strides, kept_strides, reduced, reduced_strides)


def _fold_of(call: Call, dtype: str) -> Fold:
    if call.opcode in ("sum", "prod"):
        return Fold(call.opcode, register(call.compute))
    return Fold(call.opcode, "i32" if call.opcode in ("any", "all") else accumulator(dtype))


@template("reduce", takes=("prologue",))
def reduce(call: Call) -> Any:
    """``out`` = opcode over the last ``params[0]`` dims, of a program of the input where there is one."""
    if call.prologue and (call.opcode not in ("sum", "prod") or register(call.compute) not in REAL):
        return NotImplemented
    if len(call.inputs) > 1:
        return NotImplemented
    shape, fold = _shape(call), _fold_of(call, name_of(call.inputs[0].dtype))
    split = _split(call, shape, has_folds(call, fold, name_of(call.inputs[0].dtype)))
    if split == 1:
        return LaunchPlan([_first(call, shape, fold, 1)])
    values = -(-split * shape.outputs * ITEMSIZE[DTYPE[fold.c]] // 16) * 16
    workspace = values + (split * shape.outputs * 8 if fold.located else 0)
    return LaunchPlan([_first(call, shape, fold, split), _second(call, shape, fold, split)], workspace)


def _along(call: Call, shape: _Shape, folds: bool) -> bool:
    """Whether a group goes along the reduced dims together: they lie close, and are long."""
    vectors = folds and call.device.serial and shape.reduced_strides[-1] == 1
    if (shape.reduced[-1] <= _SHORT_OF_VECTORS) if vectors else (shape.length <= _SHORT):
        return False
    step = abs(shape.reduced_strides[-1])
    return step == 1 or shape.outputs == 1 or abs(shape.kept_strides[-1]) > step


def _split(call: Call, shape: _Shape, folds: bool) -> int:
    """Into how many parts the reduced elements are cut, so that all units have work and sums stay short."""
    device = call.device
    along = _along(call, shape, folds)
    chunk = _CHUNK if along else _CHUNK // 8
    if device.serial and along and shape.length <= 8 * chunk:  # a second stage would cost more
        return 1
    parts = -(-shape.length // chunk)
    if folds and along and parts * shape.outputs > 64 * device.compute_units:  # each costs a group
        parts = -(-shape.length // (4 * chunk))
    if shape.outputs * parts >= 64 * device.compute_units and shape.outputs >= 4 * device.compute_units:
        parts = -(-shape.length // (8 * chunk))
    return min(parts, 4096)


def _first(call: Call, shape: _Shape, fold: Fold, split: int) -> Launch:
    kernel = Kernel(call, "reduce")
    x = kernel.input(0)
    store = _store_output(kernel, shape, fold) if split == 1 else _store_partial(kernel, shape, fold, split)
    folds = has_folds(call, fold, x.dtype)
    along = _along(call, shape, folds)
    if along and folds and shape.reduced_strides[-1] == 1:
        return _along_vectors(kernel, x, shape, fold, split, store)
    if not along and folds and shape.kept_strides[-1] == 1:
        return _across_vectors(kernel, x, shape, fold, split, store)
    build = _along_text if along else _across_text
    return build(kernel, x, shape, fold, split, store)


Store = Callable[[str, str, str, str], str]  # number of the output, part, value, position


def _store_output(kernel: Kernel, shape: _Shape, fold: Fold) -> Store:
    out = kernel.output(0)
    sizes, strides = kernel.own_indices(shape.kept), kernel.indices(shape.out_strides)
    names = [f"q{k}" for k in range(len(sizes))]

    def store(number: str, part: str, value: str, position: str) -> str:
        at = offset_text(names, strides)
        statement = out.store(at, position, "i64") if fold.located else out.store(at, value, fold.c)
        return f"{{ {coordinates(number, sizes, names)} {statement} }}"

    return store


def _store_partial(kernel: Kernel, shape: _Shape, fold: Fold, split: int) -> Store:
    values, positions = _partials(kernel, shape, fold, split)
    parts = kernel.index(split)

    def store(number: str, part: str, value: str, position: str) -> str:
        at = f"({number}) * {parts} + {part}"
        located = positions.store(at, f"(i64)({position})", "i64") if fold.located else ""
        return f"{{ {values.store(at, value, fold.c)} {located} }}"

    return store


def _partials(kernel: Kernel, shape: _Shape, fold: Fold, split: int) -> tuple[Tensor, Tensor]:
    dtype = DTYPE[fold.c]
    values = kernel.workspace(0, dtype)
    if not fold.located:
        return values, values
    return values, kernel.workspace(-(-split * shape.outputs * ITEMSIZE[dtype] // 16) * 16, "int64")


def _second(call: Call, shape: _Shape, fold: Fold, split: int) -> Launch:
    """One item per output takes the parts together."""
    kernel = Kernel(call, "reduce_parts")
    store = _store_output(kernel, shape, fold)
    values, positions = _partials(kernel, shape, fold, split)
    group = 1 if call.device.serial else call.device.group
    count, parts = kernel.own_index(shape.outputs), kernel.index(split)
    position = positions.load("at", "i64") if fold.located else "0"
    body = f"""
  const idx o = (idx)GROUP(0) * {group} + LANE(0);
  if (o >= {count}) return;
  {fold.c} acc = {fold.start};
  i64 where = 0x7fffffffffffffff;
  for (idx s = 0; s < {parts}; ++s) {{
    const idx at = o * {parts} + s;
    const {fold.c} v = {values.load("at", fold.c)};
    const i64 p = {position};
    {fold.add("acc", "v", "where", "p")}
  }}
  {store("o", "0", "acc", "where")}"""
    return kernel.launch(body, (-(-shape.outputs // group),), (group,))


def _chunks(kernel: Kernel, shape: _Shape, split: int) -> str:
    length = kernel.own_index(shape.length)
    if split == 1:
        return f"const idx s = 0, first = 0, last = {length};"
    chunk = kernel.index(-(-shape.length // split))
    return (
        f"const idx s = task % {kernel.index(split)}, first = s * {chunk}; "
        f"const idx last = first + {chunk} < {length} ? first + {chunk} : {length};"
    )


def _element(kernel: Kernel, x: Tensor, shape: _Shape, fold: Fold, number: str, extra: str = "") -> str:
    """Statements that declare ``v``, the element ``number`` of the reduced dims of an output at ``base``."""
    sizes, strides = kernel.own_indices(shape.reduced), kernel.indices(shape.reduced_strides)
    names = [f"e{k}" for k in range(len(sizes))]
    at = offset_text(names, strides)
    return f"{coordinates(number, sizes, names)} const {fold.c} v = {_loaded(kernel, x, f'base + {at}{extra}', fold)};"


def _loaded(kernel: Kernel, x: Tensor, at: str, fold: Fold) -> str:
    if fold.opcode in ("any", "all"):
        return f"(i32)({x.load(at, accumulator(x.dtype))} != 0)"
    return f"prologue({x.load(at, fold.c)})" if kernel.call.prologue else x.load(at, fold.c)


def _prologue(call: Call, fold: Fold) -> str:
    """The function that makes what is reduced of what is loaded."""
    if not call.prologue:
        return ""
    lines, (value,), helpers = program_text(call.prologue, ["x"], fold.c, lambda divisor: "")
    return f"{helpers}\nDEVICE {fold.c} prologue({fold.c} x) {{ {' '.join(lines)} return {value}; }}"


def _base(kernel: Kernel, shape: _Shape, number: str) -> str:
    names = [f"k{k}" for k in range(len(shape.kept))]
    text = coordinates(number, kernel.own_indices(shape.kept), names)
    return f"{text} const idx base = {offset_text(names, kernel.own_indices(shape.kept_strides))};"


def _along_text(kernel: Kernel, x: Tensor, shape: _Shape, fold: Fold, split: int, store: Store) -> Launch:
    """One group per output and part; every item takes ``width`` neighbours at a time, to separate accumulators."""
    device = kernel.call.device
    group = 1 if device.serial else device.group
    near = shape.reduced_strides[-1] == 1 and (len(shape.reduced) == 1 or device.serial)
    width = (16 if device.serial else 4) if near else 1
    walk = _by_lines if near and len(shape.reduced) > 1 else _in_order
    body = f"""
  {_task(kernel, split)}
  {_chunks(kernel, shape, split)}
  {_base(kernel, shape, "o")}
  {fold.c} acc[{width}];
  idx where[{width}];
  for (i32 j = 0; j < {width}; ++j) {{ acc[j] = {fold.start}; where[j] = first; }}
  {walk(kernel, x, shape, fold, width, group)}
  for (i32 j = 1; j < {width}; ++j) {{ {fold.add("acc[0]", "acc[j]", "where[0]", "where[j]")} }}
  {_tree(fold, group)}
  if (LANE(0) == 0) {store("o", "s", "acc[0]", "where[0]")}"""
    return kernel.launch(body, (shape.outputs * split,), (group,), _prologue(kernel.call, fold))


def _task(kernel: Kernel, split: int) -> str:
    if split == 1:
        return "const idx task = GROUP(0), o = task;"
    return f"const idx task = GROUP(0), o = task / {kernel.index(split)};"


def _along_vectors(kernel: Kernel, x: Tensor, shape: _Shape, fold: Fold, split: int, store: Store) -> Launch:
    """As :func:`_along_text` of serial devices, in vectors."""
    folding = Folding(kernel.call, x, fold)
    sizes, strides = kernel.own_indices(shape.reduced), kernel.indices(shape.reduced_strides)
    names = [f"e{k}" for k in range(len(sizes))]

    def loop(line: str) -> str:
        if len(sizes) == 1:
            return f"{{ const idx line = base + first, run = last - first;\n    {line} }}"
        return f"""for (idx r = first; r < last;) {{
    {coordinates("r", sizes, names)}
    const idx left = {sizes[-1]} - {names[-1]}, run = left < last - r ? left : last - r;
    const idx line = base + {offset_text(names, strides)};
    {line}
    r += run;
  }}"""

    many = _rows_of_an_item(kernel.call, shape) if split == 1 else 1
    end, step = kernel.own_index(shape.outputs), kernel.own_index(many)
    rows = f"for (idx o = (idx)GROUP(0) * {step}; o < {end} && o < ((idx)GROUP(0) + 1) * {step}; ++o)"
    body = f"""
  {rows if split == 1 else _task(kernel, split)}
  {{
  {_chunks(kernel, shape, split)}
  {_base(kernel, shape, "o")}
  {folding.along(loop)}
  {store("o", "s", "acc", "0")}
  }}"""
    return kernel.launch(body, (-(-shape.outputs // many) * split,), (1,), folding.helpers)


def _rows_of_an_item(call: Call, shape: _Shape) -> int:
    """Short rows are several to an item, which costs as much as tens of elements, while all units have work."""
    most = -(-shape.outputs // (8 * call.device.compute_units))
    return max(1, min(_ITEM // shape.length, most))


def _across_vectors(kernel: Kernel, x: Tensor, shape: _Shape, fold: Fold, split: int, store: Store) -> Launch:
    """As :func:`_across_text` of serial devices, in vectors: several side by side, which memory brings together."""
    folding = Folding(kernel.call, x, fold)
    inner = shape.kept[-1]
    count = _BESIDE if inner > _BESIDE // 2 * folding.lanes else 1
    width = count * folding.lanes
    blocks = -(-inner // width)
    n, b = kernel.own_index(inner), kernel.own_index(blocks)
    sizes, strides = kernel.own_indices(shape.reduced), kernel.indices(shape.reduced_strides)
    names = [f"e{k}" for k in range(len(sizes))]

    def element(number: str) -> str:
        return f"{coordinates(number, sizes, names)} const idx at = base + {offset_text(names, strides)};"

    body = f"""
  const idx task = GROUP(0), block = task / {kernel.own_index(split)};
  {_chunks(kernel, shape, split)}
  const idx from = block % {b} * {width}, o = block / {b} * {n} + from;
  const i32 many = {n} - from < {width} ? (i32)({n} - from) : {width};
  {_base(kernel, shape, "o")}
  {folding.across(count, element, "kept")}
  for (i32 j = 0; j < many; ++j) {store("o + j", "s", "kept[j]", "0")}"""
    return kernel.launch(body, (shape.outputs // inner * blocks * split,), (1,), folding.helpers)


def _in_order(kernel: Kernel, x: Tensor, shape: _Shape, fold: Fold, width: int, group: int) -> str:
    """The loop from ``first`` to ``last`` of a group's items."""
    return f"""idx r = first + LANE(0) * {width};
  for (; r + {width} <= last; r += {group * width})
    UNROLL
    for (i32 j = 0; j < {width}; ++j) {{
      {_element(kernel, x, shape, fold, "r + j")}
      {fold.follow("acc[j]", "v", "where[j]", "r + j")}
    }}
  for (; r < last; ++r) {{
    {_element(kernel, x, shape, fold, "r")}
    {fold.follow("acc[0]", "v", "where[0]", "r")}
  }}"""


def _by_lines(kernel: Kernel, x: Tensor, shape: _Shape, fold: Fold, width: int, group: int) -> str:
    """The loop of one item over several dims, of which the last lies in order: no division but one for every line."""
    sizes, strides = kernel.own_indices(shape.reduced), kernel.indices(shape.reduced_strides)
    names = [f"e{k}" for k in range(len(sizes))]
    return f"""for (idx r = first; r < last;) {{
    {coordinates("r", sizes, names)}
    const idx left = {sizes[-1]} - {names[-1]}, run = left < last - r ? left : last - r;
    const idx line = base + {offset_text(names, strides)};
    idx q = 0;
    for (; q + {width} <= run; q += {width})
      UNROLL
      for (i32 j = 0; j < {width}; ++j) {{
        const {fold.c} v = {_loaded(kernel, x, "line + q + j", fold)};
        {fold.follow("acc[j]", "v", "where[j]", "r + q + j")}
      }}
    for (; q < run; ++q) {{
      const {fold.c} v = {_loaded(kernel, x, "line + q", fold)};
      {fold.follow("acc[0]", "v", "where[0]", "r + q")}
    }}
    r += run;
  }}"""


def _tree(fold: Fold, group: int) -> str:
    """The items of a group bring their accumulators together in the first one's."""
    if group == 1:
        return ""
    place = f"LOCAL_ARRAY(idx, places, {group}); " if fold.located else ""
    keep = "places[LANE(0)] = where[0];" if fold.located else ""
    return f"""{place}LOCAL_ARRAY({fold.c}, tree, {group});
  tree[LANE(0)] = acc[0]; {keep}
  BARRIER;
  for (i32 apart = {group // 2}; apart > 0; apart /= 2) {{
    if (LANE(0) < apart) {{
      const i32 l = LANE(0), m = l + apart;
      {fold.add("tree[l]", "tree[m]", "places[l]", "places[m]")}
    }}
    BARRIER;
  }}
  acc[0] = tree[0]; {"where[0] = places[0];" if fold.located else ""}"""


def _across_text(kernel: Kernel, x: Tensor, shape: _Shape, fold: Fold, split: int, store: Store) -> Launch:
    """One item per output and part, or on serial devices per ``width`` neighbouring outputs."""
    device = kernel.call.device
    near = shape.kept_strides[-1] == 1
    width = 32 if device.serial and near else 1
    group = device.group if not device.serial else 1 if near else 8
    inner = shape.kept[-1]
    blocks = -(-inner // width)
    tasks = shape.outputs // inner * blocks * split
    count, parts = kernel.own_index(tasks), kernel.index(split)
    if width == 1:
        place = f"const idx o = task / {parts}; const i32 many = 1;"
    else:
        n, b = kernel.own_index(inner), kernel.own_index(blocks)
        place = (
            f"const idx line = task / {parts} / {b}, from = task / {parts} % {b} * {width}; "
            f"const idx o = line * {n} + from; const i32 many = {n} - from < {width} ? {n} - from : {width};"
        )
    step = _element(kernel, x, shape, fold, "r", " + j")
    loop = f"{{ {step} {fold.follow('acc[j]', 'v', 'where[j]', 'r')} }}"
    body = f"""
  const idx task = (idx)GROUP(0) * {group} + LANE(0);
  if (task >= {count}) return;
  {_chunks(kernel, shape, split)}
  {place}
  {_base(kernel, shape, "o")}
  {fold.c} acc[{width}];
  idx where[{width}];
  for (i32 j = 0; j < {width}; ++j) {{ acc[j] = {fold.start}; where[j] = first; }}
  if (many == {width})
    for (idx r = first; r < last; ++r)
      UNROLL
      for (i32 j = 0; j < {width}; ++j) {loop}
  else
    for (idx r = first; r < last; ++r)
      for (i32 j = 0; j < many; ++j) {loop}
  for (i32 j = 0; j < many; ++j) {store("o + j", "s", "acc[j]", "where[j]")}"""
    return kernel.launch(body, (-(-tasks // group),), (group,), _prologue(kernel.call, fold))
