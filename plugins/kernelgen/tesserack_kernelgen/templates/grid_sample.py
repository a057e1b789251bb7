"""Values of images and blocks at places between their elements, with both gradients.

An item takes a block of places: what elements each reads and with which weights first, then all channels. The
formulas are those of the cpu's kernels, coordinates that are no numbers included.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import STORAGE, accumulator, name_of
from tesserack_kernelgen.kernel import Kernel, Tensor
from tesserack_kernelgen.templates._registry import template

__all__ = ["grid_sample", "grid_sample_backward"]

_BLOCK = 64  # places of an item on serial devices, of which compilers make vectors
_UNROLLED = 4  # loops of compare-and-swap of a thread whose registers hold what they add
_LINEAR, _NEAREST, _CUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)

# Coordinates held within the borders or reflected at them; ``turn``, their derivative, is 0 where that holds them.
_PADDING = """
DEVICE {c} held({c} x, {c} last) {{
  const {c} low = x > 0 ? x : 0;
  return low >= last ? last : low;
}}
DEVICE {c} reflected({c} x, {c} low, {c} span, {c} last, {c}* sign) {{
  const {c} away = fabs(x - low), turns = floor(away / span);
  const {c} passed = away - turns * span, rest = passed < 0 ? 0 : passed > span ? span : passed;
  const i32 odd = floor(turns * ({c})0.5) * 2 != turns;
  const {c} found = (odd ? span - rest : rest) + low;
  *sign = (x < low) != odd ? -1 : 1;
  *sign = ((found > 0) & (found < last)) ? *sign : 0;
  return !(found > 0) ? 0 : found >= last ? last : found;
}}
DEVICE idx element({c} x, {c} end) {{
  const {c} whole = rint(x);
  return (idx)(((whole >= 0) & (whole < end)) ? whole : ({c})-1);
}}
"""
# Keys' kernel with a = -0.75: the weights of four neighbours by the place t after the second, and their derivatives.
_WEIGHTS = ("FAR(t + 1)", "NEAR(t)", "NEAR(1 - t)", "FAR(2 - t)")
_SLOPES = ("FAR_SLOPE(t + 1)", "NEAR_SLOPE(t)", "-NEAR_SLOPE(1 - t)", "-FAR_SLOPE(2 - t)")
_KEYS = """
#define FAR(x) (((A * (x) - 5 * A) * (x) + 8 * A) * (x) - 4 * A)
#define NEAR(x) (((A + 2) * (x) - (A + 3)) * (x) * (x) + 1)
#define FAR_SLOPE(x) ((3 * A * (x) - 10 * A) * (x) + 8 * A)
#define NEAR_SLOPE(x) ((3 * (A + 2) * (x) - 2 * (A + 3)) * (x))
#define A (({c})-0.75)
"""


class _Places:
    """The text that finds what a block of places reads: ``index`` (-1: none) and ``weight`` of each tap in turn, and
    if asked for ``slope0``, ... by each coordinate of the grid."""

    def __init__(self, kernel: Kernel, x: Any, grid: Any, points: Tensor, width: int, slopes: bool):
        self.kernel = kernel
        self.mode, self.padding, self.align = kernel.call.params
        self.dims, self.width, self.slopes = x.ndim - 2, width, slopes
        self.c = accumulator(name_of(x.dtype))
        self.points = points
        self.sizes = kernel.own_indices(reversed(x.shape[2:]))  # by coordinate: the last dim first
        self.taps = {_LINEAR: 1 << self.dims, _NEAREST: 1, _CUBIC: 16}[self.mode]
        self.flat = [self.align and size == 1 for size in reversed(x.shape[2:])]
        self.count = kernel.own_index(math.prod(grid.shape[1:-1]))
        self.channels, self.elements = kernel.own_indices((x.shape[1], math.prod(x.shape[2:])))
        self.each = f"for (i32 j = 0; j < {width}; ++j)"

    @property
    def helpers(self) -> str:
        """Functions that the text calls."""
        return (_PADDING + (_KEYS if self.mode == _CUBIC else "")).format(c=self.c)

    def text(self) -> str:
        """Statements: for ``many`` places from ``first`` on of image ``n``."""
        w, c = self.width, self.c
        lines = [f"idx index[{self.taps * w}];", f"{c} weight[{self.taps * w}];"]
        if self.slopes:
            lines += [f"{c} slope{d}[{self.taps * w}];" for d in range(self.dims)]
        lines += [self._located(d) for d in range(self.dims)]
        made = {_LINEAR: self._linear, _NEAREST: self._nearest, _CUBIC: self._cubic}[self.mode]
        return "\n  ".join((*lines, *made()))

    def _located(self, d: int) -> str:
        """Where coordinate ``d`` looks among elements, and its derivative."""
        c, w, size = self.c, self.width, self.sizes[d]
        scale = f"({c})({size} - 1) / 2" if self.align else f"({c}){size} / 2"
        place = "(g + 1) * scale" if self.align else f"((g + 1) * ({c}){size} - 1) / 2"
        point = self.points.load(f"(n * {self.count} + first + (j < many ? j : 0)) * {self.dims} + {d}", c)
        turn = f"turn{d}[j] = scale;" if self.slopes else ""
        text = f"""{c} at{d}[{w}]{f", turn{d}[{w}]" if self.slopes else ""};
  {{
    const {c} scale = {scale};
    {self.each} {{ const {c} g = {point}; at{d}[j] = {place}; {turn} }}
  }}"""
        if self.padding == _ZEROS or self.mode == _CUBIC:  # cubic pads each of its elements
            return text
        turned = f"turn{d}[j] *= sign;" if self.slopes else ""
        return f"{text}\n  {self.each} {{ {c} sign = 1; {self._padded(d, f'at{d}[j]')} {turned} }}"

    def _padded(self, d: int, at: str) -> str:
        """Statements that hold a coordinate within the borders, and multiply its derivative, ``sign``."""
        c, size = self.c, self.sizes[d]
        last = f"({c})({size} - 1)"
        if self.padding == _BORDER:
            return f"sign = (({at} > 0) & ({at} < {last})) ? sign : 0; {at} = held({at}, {last});"
        if self.flat[d]:
            return f"{at} = 0; sign = 0;"
        low, span = ("0", f"{size} - 1") if self.align else (f"({c})-0.5", size)
        return f"{at} = reflected({at}, {low}, ({c})({span}), {last}, &sign);"

    def _tap(self, tap: int, numbers: list[str], parts: list[str], slopes: list[str]) -> str:
        """Of one element around a place: by its numbers and its shares along the dims, and their derivatives."""
        at = f"{tap * self.width} + j"
        place = numbers[-1]
        for d in range(self.dims - 2, -1, -1):
            place = f"({place}) * {self.sizes[d]} + {numbers[d]}"
        text = f"index[{at}] = ({' | '.join(numbers)}) >= 0 ? {place} : -1; weight[{at}] = {' * '.join(parts)};"
        for d in range(self.dims if self.slopes else 0):
            others = [part for e, part in enumerate(parts) if e != d]
            text += f" slope{d}[{at}] = {' * '.join((slopes[d], *others, f'turn{d}[j]'))};"
        return f"{self.each} {{ {text} }}"

    def _linear(self) -> list[str]:
        c, w, lines = self.c, self.width, []
        for d, size in enumerate(self.sizes):
            # Of what is no number all elements are outside.
            lines.append(f"""{c} before{d}[{w}], after{d}[{w}];
  idx low{d}[{w}], high{d}[{w}];
  {self.each} {{
    const {c} whole = floor(at{d}[j]), t = at{d}[j] - whole;
    const {c} above = whole >= -1 ? whole : -2, kept = above <= ({c}){size} ? above : -2;
    const idx k = (idx)kept, next = k + 1;
    before{d}[j] = 1 - t;
    after{d}[j] = t;
    low{d}[j] = ((k >= 0) & (k < {size})) ? k : -1;
    high{d}[j] = ((next >= 0) & (next < {size})) ? next : -1;
  }}""")
        for tap in range(self.taps):
            sides = [tap >> d & 1 for d in range(self.dims)]
            numbers = [f"{'high' if side else 'low'}{d}[j]" for d, side in enumerate(sides)]
            parts = [f"{'after' if side else 'before'}{d}[j]" for d, side in enumerate(sides)]
            lines.append(self._tap(tap, numbers, parts, ["1" if side else "-1" for side in sides]))
        return lines

    def _nearest(self) -> list[str]:
        numbers = [f"element(at{d}[j], ({self.c}){size})" for d, size in enumerate(self.sizes)]
        named = " ".join(f"const idx k{d} = {number};" for d, number in enumerate(numbers))
        tap = self._tap(0, [f"k{d}" for d in range(self.dims)], ["1"] * self.dims, ["0"] * self.dims)
        return [tap.replace("{ ", f"{{ {named} ", 1)]

    def _cubic(self) -> list[str]:
        c, w, lines = self.c, self.width, []
        for d, size in enumerate(self.sizes):
            for k in range(4):
                pad = self._padded(d, "x") if self.padding != _ZEROS else ""
                lines.append(f"""{c} share{d}{k}[{w}]{f", slant{d}{k}[{w}]" if self.slopes else ""};
  idx number{d}{k}[{w}];
  {self.each} {{
    const {c} whole = floor(at{d}[j]), t = at{d}[j] - whole;
    {c} x = whole + ({c}){k - 1}, sign = 1;
    {pad}
    share{d}{k}[j] = {_WEIGHTS[k]};
    {f"slant{d}{k}[j] = {_SLOPES[k]};" if self.slopes else ""}
    number{d}{k}[j] = element(x, ({c}){size});
  }}""")
        for tap in range(16):
            names = [f"0{tap % 4}[j]", f"1{tap // 4}[j]"]
            made = ([f"{kind}{name}" for name in names] for kind in ("number", "share", "slant"))
            lines.append(self._tap(tap, *made))
        return lines


class _Blocks:
    """The launch of one kernel: an item for every block of places."""

    def __init__(self, kernel: Kernel, x: Any, grid: Any):
        device = kernel.call.device
        self.kernel = kernel
        self.width, self.group = (_BLOCK, 1) if device.serial else (1, device.group)
        places = math.prod(grid.shape[1:-1])
        blocks = -(-places // self.width)
        self.items: int = x.shape[0] * blocks
        self.per_image, self.count = kernel.own_indices((blocks, places))

    def launch(self, body: str, helpers: str) -> Launch:
        """``body`` is for ``many`` places from ``first`` on of image ``n``."""
        head = f"""
  const idx t = (idx)GROUP(0) * {self.group} + LANE(0);
  if (t >= {self.kernel.own_index(self.items)}) return;
  const idx n = t / {self.per_image}, first = t % {self.per_image} * {self.width};
  const i32 many = {self.count} - first < {self.width} ? (i32)({self.count} - first) : {self.width};"""
        return self.kernel.launch(f"{head}\n  {body}", (-(-self.items // self.group),), (self.group,), helpers)


def _channels(p: _Places, statements: str) -> str:
    """A loop over channels, of which ``plane`` is the first element and ``to`` that of the block's first place."""
    return f"""for (idx c = 0; c < {p.channels}; ++c) {{
    const idx plane = (n * {p.channels} + c) * {p.elements}, to = (n * {p.channels} + c) * {p.count} + first;
    {statements}
  }}"""


@template("grid_sample")
def grid_sample(call: Call) -> LaunchPlan:
    """``out`` (N, C, places) of ``in0`` (N, C, elements) at ``in1`` (N, places, coordinates), all contiguous;
    ``params`` mode, padding, align_corners."""
    x, grid = call.inputs
    kernel = Kernel(call, "grid_sample")
    out, source = kernel.output(0), kernel.input(0)
    blocks = _Blocks(kernel, x, grid)
    p = _Places(kernel, x, grid, kernel.input(1), blocks.width, slopes=False)
    value = source.load("plane + (at > 0 ? at : 0)", p.c)
    taps = " ".join(
        f"{{ const idx at = index[{k} + j]; const {p.c} v = {value}; sum += at >= 0 ? weight[{k} + j] * v : 0; }}"
        for k in range(0, p.taps * p.width, p.width)
    )
    loop = f"""{p.c} sums[{p.width}];
    {p.each} {{ {p.c} sum = 0; {taps} sums[j] = sum; }}
    for (i32 j = 0; j < many; ++j) {{ {out.store("to + j", "sums[j]", p.c)} }}"""
    return LaunchPlan([blocks.launch(f"{p.text()}\n  {_channels(p, loop)}", p.helpers)])


@template("grid_sample_backward")
def grid_sample_backward(call: Call) -> LaunchPlan:
    """Gradients by input and by grid of inputs grad, input, grid; ``params`` as in :func:`grid_sample`.

    On devices of few processors, and where deterministic results are asked for, an item adds up planes in order.
    Elsewhere additions are atomic. Narrow dtypes are added up in float32.
    """
    out = call.outputs[0]
    narrow = name_of(out.dtype) not in ("float32", "float64")
    scratch = 4 * out.numel if narrow else 0
    wide = name_of(out.dtype) == "float64" and not call.device.int64_atomics
    if call.device.serial or call.deterministic or wide:
        return LaunchPlan([_grid_gradient(call), _sum_planes(call, narrow)], scratch)
    launches = [_grid_gradient(call), _clear(call, narrow), _add_atomically(call, narrow)]
    return LaunchPlan([*launches, _cast(call)] if narrow else launches, scratch)


def _grid_gradient(call: Call) -> Launch:
    _, x, grid = call.inputs
    kernel = Kernel(call, "grid_sample_grid_gradient")
    out, grad, source = kernel.output(1), kernel.input(0), kernel.input(1)
    blocks = _Blocks(kernel, x, grid)
    p = _Places(kernel, x, grid, kernel.input(2), blocks.width, slopes=True)
    c, dims = p.c, range(p.dims)
    sums = " ".join(f"{c} sums{d}[{p.width}]; {p.each} sums{d}[j] = 0;" for d in dims)
    value = f"{source.load('plane + (at > 0 ? at : 0)', c)} * given[j]"
    added = " ".join(f"sums{d}[j] += slope{d}[k + j] * v;" for d in dims)
    taps = f"""UNROLL for (i32 k = 0; k < {p.taps * p.width}; k += {p.width})
      {p.each} {{ const idx at = index[k + j]; const {c} v = at >= 0 ? {value} : 0; {added} }}"""
    given = grad.load("to + (j < many ? j : 0)", c)
    loop = _channels(p, f"{c} given[{p.width}]; {p.each} given[j] = {given};\n    {taps}")
    at = f"(n * {p.count} + first + j) * {p.dims}"
    stores = " ".join(out.store(f"{at} + {d}", f"sums{d}[j]", c) for d in dims)
    if p.mode == _NEAREST:  # whose values do not move with the places
        stores = " ".join(out.store(f"{at} + {d}", "0", c) for d in dims)
        return blocks.launch(f"for (i32 j = 0; j < many; ++j) {{ {stores} }}", "")
    body = f"{p.text()}\n  {sums}\n  {loop}\n  for (i32 j = 0; j < many; ++j) {{ {stores} }}"
    return blocks.launch(body, p.helpers)


def _sums(kernel: Kernel, narrow: bool) -> Tensor:
    return kernel.workspace(0, "float32") if narrow else kernel.output(0)


def _tap_loops(p: _Places, grad: Tensor, add: Callable[[str, str], str]) -> str:
    """Statements that add what the places of a block give to the elements they read."""
    one = add("plane + at", f"weight[k * {p.width} + j] * {grad.load('to + j', p.c)}")
    few = p.taps <= _UNROLLED
    return f"""{"UNROLL" if few else ""} for (i32 k = 0; k < {p.taps if few else p.kernel.own_index(p.taps)}; ++k)
      for (i32 j = 0; j < many; ++j) {{
        const idx at = index[k * {p.width} + j];
        if (at >= 0) {{ {one} }}
      }}"""


def _sum_planes(call: Call, narrow: bool) -> Launch:
    """An item takes some channels of an image, and all places one after the other."""
    _, x, grid = call.inputs
    kernel = Kernel(call, "grid_sample_planes")
    width = _BLOCK if call.device.serial else 1
    sums, grad = _sums(kernel, narrow), kernel.input(0)
    p = _Places(kernel, x, grid, kernel.input(2), width, slopes=False)
    batch, channels = x.shape[:2]
    units = 2 * call.device.compute_units if call.device.serial else channels
    own = -(-channels // max(1, min(channels, -(-units // batch))))
    pieces = -(-channels // own)
    per_image, some = kernel.own_index(pieces), kernel.own_index(own)
    add = _tap_loops(p, grad, lambda at, v: sums.store(at, f"{sums.load(at, p.c)} + {v}", p.c))
    element = f"(n * {p.channels} + begin) * {p.elements} + e"
    every = f"for (idx e = 0; e < (end - begin) * {p.elements}; ++e)"
    cast = ""
    if narrow:
        cast = f"{every} {{ {kernel.output(0).store(element, sums.load(element, p.c), p.c)} }}"
    body = f"""
  const idx n = (idx)GROUP(0) / {per_image}, begin = (idx)GROUP(0) % {per_image} * {some};
  const idx end = {p.channels} - begin < {some} ? {p.channels} : begin + {some};
  {every} {{ {sums.store(element, "0", p.c)} }}
  for (idx first = 0; first < {p.count}; first += {width}) {{
  const i32 many = {p.count} - first < {width} ? (i32)({p.count} - first) : {width};
  {p.text()}
  for (idx c = begin; c < end; ++c) {{
    const idx plane = (n * {p.channels} + c) * {p.elements}, to = (n * {p.channels} + c) * {p.count} + first;
    {add}
  }}
  }}
  {cast}"""
    return kernel.launch(body, (batch * pieces,), (1,), p.helpers)


def _add_atomically(call: Call, narrow: bool) -> Launch:
    _, x, grid = call.inputs
    kernel = Kernel(call, "grid_sample_scatter")
    sums, grad = _sums(kernel, narrow), kernel.input(0)
    blocks = _Blocks(kernel, x, grid)
    p = _Places(kernel, x, grid, kernel.input(2), blocks.width, slopes=False)
    bits = STORAGE[sums.dtype][1:]

    def add(at: str, value: str) -> str:
        return f"""const {p.c} value = {value};
          GLOBAL u{bits}* const word = (GLOBAL u{bits}*)({sums.pointer}) + {at};
          for (u{bits} old = *word, seen;; old = seen) {{
            seen = CAS{bits}(word, old, AS_U{bits}(AS_F{bits}(old) + value));
            if (seen == old) break;
          }}"""

    return blocks.launch(f"{p.text()}\n  {_channels(p, _tap_loops(p, grad, add))}", p.helpers)


def _each_element(kernel: Kernel, statement: str) -> Launch:
    """For every element of the gradient by the input, ``i``."""
    count, group = kernel.call.outputs[0].numel, kernel.call.device.group
    body = f"""
  const idx i = (idx)GROUP(0) * {group} + LANE(0);
  if (i >= {kernel.own_index(count)}) return;
  {statement}"""
    return kernel.launch(body, (-(-count // group),), (group,))


def _clear(call: Call, narrow: bool) -> Launch:
    kernel = Kernel(call, "grid_sample_clear")
    sums = _sums(kernel, narrow)
    return _each_element(kernel, sums.store("i", "0", accumulator(sums.dtype)))


def _cast(call: Call) -> Launch:
    kernel = Kernel(call, "grid_sample_cast")
    sums, out = _sums(kernel, True), kernel.output(0)
    return _each_element(kernel, out.store("i", sums.load("i", "f32"), "f32"))
