"""Fourier transforms of rows, by Stockham's steps: each of radix 2 to 13, from one buffer to the other, in order.

Of a row of n = r s m points, a step combines for each p < m and q < s the points q + s (p + m k), k < r, and writes
them times the roots j p s to the places q + s (r p + j). The inverse is the same with both parts exchanged, on the way
in and on the way out.

Rows of an even number n of real numbers are taken for n / 2 complex ones: with w = exp(-2 pi i / n), their spectrum X
and the real numbers' Y are told by each other,
    2 Y[k] = X[k] + X[n/2 - k]* - i w^k (X[k] - X[n/2 - k]*),
    X[k] = Y[k] + Y[n/2 - k]* + i w^k (Y[k] - Y[n/2 - k]*).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.butterfly import Text, butterfly, radices
from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import ITEMSIZE, STORAGE, name_of
from tesserack_kernelgen.kernel import Kernel, Tensor
from tesserack_kernelgen.templates._registry import template

__all__ = ["fft_rows"]

_COMPLEX, _TO_HALF, _FROM_HALF = range(3)
_KEPT = 16384  # points of a row that are computed for several rows side by side


@dataclass(frozen=True)
class _Step:
    """One step: sizes as above, and where it stands."""

    r: int
    s: int
    m: int
    first: bool
    last: bool


class _Rows:
    """What every form of the kernel knows of a call."""

    def __init__(self, call: Call):
        self.call = call
        x, roots = call.inputs
        self.kind, self.inverse, self.scale = int(call.params[0]), bool(call.params[1]), float(call.params[2])
        self.n = roots.shape[0]
        self.packed = self.kind != _COMPLEX and self.n % 2 == 0
        self.points = self.n // 2 if self.packed else self.n
        self.unpacks = self.packed and self.kind == _TO_HALF  # after the last step
        self.dtype = name_of(x.dtype)
        self.c = STORAGE[self.dtype]
        given = (self.n // 2 + 1) * 2 if self.kind == _FROM_HALF else self.n * (1 if self.kind == _TO_HALF else 2)
        self.rows = x.numel // given
        self.row_bytes = self.points * ITEMSIZE[self.dtype]
        self.steps, s = [], 1
        steps = radices(self.points) or []
        for number, r in enumerate(steps):
            ends = number == 0, number == len(steps) - 1 and not self.unpacks
            self.steps.append(_Step(r, s, self.points // (s * r), *ends))
            s *= r

    def helpers(self) -> str:
        """Functions that read a point of a row, and write one."""
        re, im = ("im", "re") if self.inverse else ("re", "im")
        c, half = self.c, self.n // 2 + 1
        load, keep = f"LOAD_{self.dtype}(p, {{}})", f"((GLOBAL {c}*)p)[{{}}] = {{}} * scale;"
        pair, real = f"2 * (row * {self.points} + i)", f"row * {self.n} + i"
        before = ""
        if self.kind == _COMPLEX or self.unpacks:
            gets = load.format(pair), load.format(f"{pair} + 1")
        elif self.kind == _TO_HALF:
            gets = load.format(real), "0"
        elif self.packed:
            before, gets = self._packs(load)
        else:
            at = f"2 * (row * {half} + (i < {half} ? i : {self.n} - i))"
            imaginary = load.format(f"{at} + 1")
            flat = f"i == 0 || 2 * i == {self.n}"
            gets = load.format(at), f"({flat}) ? 0 : i < {half} ? {imaginary} : -{imaginary}"
        pairs = keep.format(pair, "re") + " " + keep.format(f"{pair} + 1", "im")
        halves = keep.format(f"2 * (row * {half} + i)", "re") + " " + keep.format(f"2 * (row * {half} + i) + 1", "im")
        numbers = pairs if self.packed else keep.format(real, "re")
        puts = {_COMPLEX: pairs, _TO_HALF: f"if (i < {half}) {{ {halves} }}", _FROM_HALF: numbers}
        return f"""
DEVICE {c} get_{re}({self.read} idx row, idx i) {{ {before}return {gets[0]}; }}
DEVICE {c} get_{im}({self.read} idx row, idx i) {{ {before}return {gets[1]}; }}
DEVICE void put(GLOBAL u8* p, idx row, idx i, {c} {re}, {c} {im}, {c} scale) {{
  {puts[self.kind]}
}}"""

    @property
    def read(self) -> str:
        """Parameters of what reads a point, before its place."""
        roots = " GLOBAL const u8* roots," if self.packed and self.kind == _FROM_HALF else ""
        return f"GLOBAL const u8* p,{roots}"

    def get(self, part: str, x: str, table: Tensor, place: str, many: str = "") -> str:
        """A call that reads a part of a point."""
        roots = f"{table.pointer}, " if self.packed and self.kind == _FROM_HALF else ""
        return f"get_{part}{many}({x}, {roots}{place})"

    def _packs(self, load: str) -> tuple[str, tuple[str, str]]:
        """Statements that read two points of half a spectrum, and the point that comes of them."""
        at, other = f"2 * (row * {self.points + 1} + i)", f"2 * (row * {self.points + 1} + {self.points} - i)"
        sign = "-" if self.inverse else ""
        c, root = self.c, load.replace("(p,", "(roots,")
        lines = (
            f"const {c} ar = {load.format(at)}, br = {load.format(other)};",
            f"const {c} ai = i ? {load.format(f'{at} + 1')} : 0, bi = i ? {load.format(f'{other} + 1')} : 0;",
            f"const {c} wr = {root.format('2 * i')}, wi = {sign}{root.format('2 * i + 1')};",
        )
        gets = "ar + br - ((ar - br) * wi + (ai + bi) * wr)", "ai - bi + (ar - br) * wr - (ai + bi) * wi"
        return " ".join(lines) + " ", gets

    def unpack(self, vector: str, table: Tensor, at: Any, put: Any) -> list[str]:
        """Statements for one ``k`` of half a spectrum, of ``at(part, i)``, the points of the packed one."""
        re, im = ("im", "re") if self.inverse else ("re", "im")
        cast, sign = "" if vector == self.c else f"({vector})", "-" if self.inverse else ""
        m, half = self.points, f"(({vector})0.5{'f' if self.c == 'f32' else ''})"
        found = "yr", f"k == 0 || k == {m} ? ({vector})0 : yi"
        return [
            f"const idx one = k == {m} ? 0 : k, other = k ? {m} - k : 0;",
            f"const {vector} ar = {at(re, 'one')}, ai = {at(im, 'one')};",
            f"const {vector} br = {at(re, 'other')}, bi = {at(im, 'other')};",
            f"const {vector} wr = {cast}{table.load('2 * k', self.c)};",
            f"const {vector} wi = {cast}({sign}{table.load('2 * k + 1', self.c)});",
            f"const {vector} yr = {half} * (ar + br + (ai + bi) * wr + (ar - br) * wi);",
            f"const {vector} yi = {half} * (ai - bi + (ai + bi) * wi - (ar - br) * wr);",
            put("k", *(found[::-1] if self.inverse else found)),
        ]

    def roots(self, table: Tensor, step: _Step, vector: str) -> tuple[list[str], list[tuple[str, str]]]:
        """Statements that load the roots of ``p``, and their names; none where p is 0."""
        if step.m == 1:
            return [], []
        cast = "" if vector == self.c else f"({vector})"
        at = [f"{(4 if self.packed else 2) * j * step.s} * p" for j in range(1, step.r)]
        loads = [
            f"const {vector} wr{j} = {cast}{table.load(i, self.c)}, wi{j} = {cast}{table.load(f'{i} + 1', self.c)};"
            for j, i in enumerate(at, 1)
        ]
        return loads, [(f"wr{j}", f"wi{j}") for j in range(1, step.r)]

    def combine(self, step: _Step, vector: str, get: Any, put: Any, roots: list[tuple[str, str]]) -> list[str]:
        """Statements for one p and q, whose points ``get(i)`` gives as two expressions and ``put(i, re, im)`` takes."""
        text = Text(self.c, vector)
        x = [text.keep(*get(f"(q + {step.s} * (p + {step.m * k}))")) for k in range(step.r)]
        y = butterfly(text, x)
        if roots:
            y = [y[0], *(text.times(a, *w) for a, w in zip(y[1:], roots, strict=True))]
        return [*text.lines, *(put(f"(q + {step.s} * ({step.r} * p + {j}))", *a) for j, a in enumerate(y))]


@template("fft_rows")
def fft_rows(call: Call) -> Any:
    """Transforms of ``inputs[0]``, rows of as many points as there are roots, in ``inputs[1]``."""
    if radices(call.inputs[1].shape[0]) is None:
        return NotImplemented
    rows, device = _Rows(call), call.device
    if device.serial and (rows.rows >= device.compute_units or rows.points < _KEPT // 2):
        return _by_items(rows)
    if not device.serial and device.group > 1 and 4 * rows.row_bytes <= device.local_bytes:
        return LaunchPlan([_by_groups(rows)])
    return _by_passes(rows)


def _by_items(rows: _Rows) -> LaunchPlan:
    """An item transforms row after row, several side by side where the dialect has vectors."""
    call, n, c = rows.call, rows.points, rows.c
    dialect, itemsize = call.card.dialect, ITEMSIZE[rows.dtype]
    lanes = call.device.simd_bytes // itemsize if dialect.vector_functions and n <= _KEPT else 1
    while lanes > 4 and rows.rows < lanes * call.device.compute_units:
        lanes //= 2  # so that every unit has some
    lanes = lanes if 1 < lanes <= 16 and rows.rows >= lanes else 1
    vector = dialect.vector(c, lanes) if lanes > 1 else c
    blocks = -(-rows.rows // lanes)
    items = min(blocks, 4 * call.device.compute_units)
    buffer = -(-n * lanes * itemsize // 64) * 64
    kernel = Kernel(call, "fft")
    x, table, out = kernel.input(0).pointer, kernel.input(1), kernel.output(0).pointer
    count, all_blocks, step_items, points = kernel.own_indices((rows.rows, blocks, items, n))
    scale, space = kernel.number(rows.scale, c), kernel.workspace(0, rows.dtype).pointer
    names = [f"{part}{side}" for side in (0, 1) for part in ("re", "im")]
    helpers = rows.helpers() + (_lane_helpers(rows, vector, lanes) if lanes > 1 else "")
    tall = f"row, {count}, "
    kept = "any_vector" if lanes > 1 else c
    lines = [
        f"GLOBAL {kept}* const {name} = (GLOBAL {kept}*)({space} + ((i64)GROUP(0) * 4 + {k}) * {buffer});"
        for k, name in enumerate(names)
    ]
    lines += [
        f"for (idx block = GROUP(0); block < {all_blocks}; block += {step_items}) {{",
        f"const idx row = block * {lanes};",
    ]
    if lanes > 1:  # once each, not in every step's text: drivers take long over inlined loops
        gets = (f"{part}1[i] = {rows.get(part, x, table, f'{tall}i', '_v')};" for part in ("re", "im"))
        lines.append(f"for (idx i = 0; i < {points}; ++i) {{ {' '.join(gets)} }}")
    for number, step in enumerate(rows.steps):
        a, b = (number + 1) % 2, number % 2

        def get(i: str, a: int = a, first: bool = step.first and lanes == 1) -> tuple[str, str]:
            if first:
                return rows.get("re", x, table, f"row, {i}"), rows.get("im", x, table, f"row, {i}")
            return f"re{a}[{i}]", f"im{a}[{i}]"

        def put(i: str, re: str, im: str, b: int = b, last: bool = step.last and lanes == 1) -> str:
            if last:
                return f"put({out}, row, {i}, {re}, {im}, {scale});"
            return f"re{b}[{i}] = {re}; im{b}[{i}] = {im};"

        loads, roots = rows.roots(table, step, vector)
        lines += [
            # Bounds are arguments: drivers would unroll loops of a known count.
            f"for (idx p = 0; p < {kernel.own_index(step.m)}; ++p) {{",
            *loads,
            f"for (idx q = 0; q < {kernel.own_index(step.s)}; ++q) {{",
            *rows.combine(step, vector, get, put, roots),
            "} }",
        ]
    side = (len(rows.steps) + 1) % 2
    if rows.unpacks:
        call_put = (
            f"put_v({out}, {tall}{{}}, {{}}, {{}}, {scale});"
            if lanes > 1
            else f"put({out}, row, {{}}, {{}}, {{}}, {scale});"
        )
        unpacked = rows.unpack(vector, table, lambda part, i: f"{part}{side}[{i}]", call_put.format)
        lines += [f"for (idx k = 0; k <= {points}; ++k) {{", *unpacked, "}"]
    elif lanes > 1:
        lines.append(f"for (idx i = 0; i < {points}; ++i) put_v({out}, {tall}i, re{side}[i], im{side}[i], {scale});")
    return LaunchPlan([kernel.launch("\n  ".join((*lines, "}")), (items,), (1,), helpers)], items * 4 * buffer)


def _lane_helpers(rows: _Rows, vector: str, lanes: int) -> str:
    """The same functions for rows side by side; of those past the end, the last is read and nothing written."""
    c = rows.c
    size = ITEMSIZE["float32" if c == "f32" else "float64"]
    given = "p, roots, " if "roots" in rows.read else "p, "
    gets = "".join(
        f"""
DEVICE {vector} get_{part}_v({rows.read} idx row, idx rows, idx i) {{
  {c} some[{lanes}];
  for (i32 l = 0; l < {lanes}; ++l) some[l] = get_{part}({given}row + l < rows ? row + l : rows - 1, i);
  return *(const any_vector*)some;
}}"""
        for part in ("re", "im")
    )
    return f"""
typedef {vector} any_vector ALIGNED({size});{gets}
DEVICE void put_v(GLOBAL u8* p, idx row, idx rows, idx i, {vector} re, {vector} im, {c} scale) {{
  {c} x[{lanes}], y[{lanes}];
  *(any_vector*)x = re;
  *(any_vector*)y = im;
  for (i32 l = 0; l < {lanes}; ++l) if (row + l < rows) put(p, row + l, i, x[l], y[l], scale);
}}"""


def _by_groups(rows: _Rows) -> Launch:
    """A group transforms a row in local memory."""
    call, n, c = rows.call, rows.points, rows.c
    most = max(step.m * step.s for step in rows.steps)
    group = min(call.device.group, 1 << max(0, most - 1).bit_length())
    kernel = Kernel(call, "fft")
    x, table, out = kernel.input(0).pointer, kernel.input(1), kernel.output(0).pointer
    scale = kernel.number(rows.scale, c)
    lines = [f"LOCAL_ARRAY({c}, {part}{side}, {n});" for side in (0, 1) for part in ("re", "im")]
    lines.append("const idx row = GROUP(0);")
    for number, step in enumerate(rows.steps):
        a, b = (number + 1) % 2, number % 2

        def get(i: str, a: int = a, first: bool = step.first) -> tuple[str, str]:
            if first:
                return rows.get("re", x, table, f"row, {i}"), rows.get("im", x, table, f"row, {i}")
            return f"re{a}[{i}]", f"im{a}[{i}]"

        def put(i: str, re: str, im: str, b: int = b, last: bool = step.last) -> str:
            return f"put({out}, row, {i}, {re}, {im}, {scale});" if last else f"re{b}[{i}] = {re}; im{b}[{i}] = {im};"

        loads, roots = rows.roots(table, step, c)
        lines += [
            f"for (idx item = LANE(0); item < {step.m * step.s}; item += {group}) {{",
            f"const idx p = item / {step.s}, q = item % {step.s};",
            *loads,
            *rows.combine(step, c, get, put, roots),
            "}",
            *(() if step.last else ("BARRIER;",)),
        ]
    if rows.unpacks:
        side, call_put = (len(rows.steps) + 1) % 2, f"put({out}, row, {{}}, {{}}, {{}}, {scale});"
        unpacked = rows.unpack(c, table, lambda part, i: f"{part}{side}[{i}]", call_put.format)
        lines += [f"for (idx k = LANE(0); k <= {n}; k += {group}) {{", *unpacked, "}"]
    return kernel.launch("\n  ".join(lines), (rows.rows,), (group,), rows.helpers())


def _by_passes(rows: _Rows) -> LaunchPlan:
    """A launch for each step, over all rows: for rows that are few and long, or longer than local memory."""
    part = -(-rows.rows * rows.row_bytes // 64) * 64
    launches = [_pass(rows, number, step, part) for number, step in enumerate(rows.steps)]
    if rows.unpacks:
        launches.append(_unpacking_pass(rows, part))
    return LaunchPlan(launches, 0 if len(launches) == 1 else 4 * part)


def _unpacking_pass(rows: _Rows, part: int) -> Launch:
    kernel, side = Kernel(rows.call, "fft"), (len(rows.steps) + 1) % 2
    table, out = kernel.input(1), kernel.output(0).pointer
    scale = kernel.number(rows.scale, rows.c)
    places = {k: kernel.workspace((2 * side + n) * part, rows.dtype).pointer for n, k in enumerate(("re", "im"))}

    def at(name: str, i: str) -> str:
        return f"((GLOBAL {rows.c}*)({places[name]}))[row * {rows.points} + {i}]"

    each = rows.points + 1
    where = f"const idx row = item / {each}, k = item % {each};"
    lines = [where, *rows.unpack(rows.c, table, at, f"put({out}, row, {{}}, {{}}, {{}}, {scale});".format)]
    return _over_items(rows, kernel, each * rows.rows, lines)


def _over_items(rows: _Rows, kernel: Kernel, total: int, lines: list[str]) -> Launch:
    """The lines for each ``item`` of all rows."""
    device = rows.call.device
    group = 1 if device.serial else device.group
    share = max(256, -(-total // (4 * device.compute_units))) if device.serial else group
    end = kernel.own_index(total)
    body = "\n  ".join(
        (
            f"const idx from = (idx)GROUP(0) * {kernel.own_index(share)};",
            f"const idx to = {end} - from < {kernel.own_index(share)} ? {end} : from + {kernel.own_index(share)};",
            f"for (idx item = from + LANE(0); item < to; item += {group}) {{",
            *lines,
            "}",
        )
    )
    return kernel.launch(body, (math.ceil(total / share),), (group,), rows.helpers())


def _pass(rows: _Rows, number: int, step: _Step, part: int) -> Launch:
    call, c = rows.call, rows.c
    kernel = Kernel(call, "fft")
    x, table = kernel.input(0).pointer if step.first else "", kernel.input(1)
    out = kernel.output(0).pointer if step.last else ""
    scale = kernel.number(rows.scale, c) if step.last else ""
    places = {}
    for side in [(number + 1) % 2] * (not step.first) + [number % 2] * (not step.last):
        for k, name in enumerate(("re", "im")):
            places[f"{name}{side}"] = kernel.workspace((2 * side + k) * part, rows.dtype).pointer

    def at(name: str, i: str) -> str:
        return f"((GLOBAL {c}*)({places[name]}))[row * {rows.points} + {i}]"

    def get(i: str) -> tuple[str, str]:
        if step.first:
            return rows.get("re", x, table, f"row, {i}"), rows.get("im", x, table, f"row, {i}")
        return at(f"re{(number + 1) % 2}", i), at(f"im{(number + 1) % 2}", i)

    def put(i: str, re: str, im: str) -> str:
        if step.last:
            return f"put({out}, row, {i}, {re}, {im}, {scale});"
        return f"{at(f're{number % 2}', i)} = {re}; {at(f'im{number % 2}', i)} = {im};"

    loads, roots = rows.roots(table, step, c)
    each = step.m * step.s
    places_of = f"const idx row = item / {each}, place = item % {each}, p = place / {step.s}, q = place % {step.s};"
    lines = [places_of, *loads, *rows.combine(step, c, get, put, roots)]
    return _over_items(rows, kernel, each * rows.rows, lines)
