"""Max and average pooling over planes, and their gradients. Planes lie contiguous or channels-last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import ITEMSIZE, REAL, accumulator, name_of
from tesserack_kernelgen.kernel import Kernel, Tensor
from tesserack_kernelgen.layout import coordinates
from tesserack_kernelgen.templates._registry import template

__all__ = ["avg_pool2d", "avg_pool2d_backward", "max_pool2d", "max_pool2d_backward"]


_CHUNK = 1024  # elements of an item on a serial device, at least


class _Items:
    """One item for every element of an operand, on serial devices for a few lines: its coordinates ``c0``..., in the
    order of memory.
    """

    def __init__(self, kernel: Kernel, operand: Any):
        self.kernel, self.operand = kernel, operand
        self.ndim = len(operand.shape)
        self.order = sorted(range(self.ndim), key=lambda d: -operand.strides[d])
        self._sizes = [kernel.own_index(operand.shape[d]) for d in self.order]
        # Here: where it stands among the arguments decides whether NVRTC spills a register on sm_100.
        self._count = "" if kernel.call.device.serial else kernel.own_index(operand.numel)

    def place(self, strides: Sequence[int], dims: int | None = None) -> str:
        """An expression: where the element with these coordinates lies, along all dims or the first ones."""
        n = self.ndim if dims is None else dims
        return " + ".join(f"c{d} * {self.kernel.own_index(strides[d])}" for d in range(n))

    def launch(self, body: str) -> Launch:
        """The launch of statements for one element."""
        device = self.kernel.call.device
        return self._lines(body) if device.serial else self._each(body, device.group)

    def _each(self, body: str, group: int) -> Launch:
        text = f"""
  const idx i = (idx)GROUP(0) * {group} + LANE(0);
  if (i >= {self._count}) return;
  {coordinates("i", self._sizes, [f"c{d}" for d in self.order])}
{body}"""
        return self.kernel.launch(text, (-(-self.operand.numel // group),), (group,))

    def _lines(self, body: str) -> Launch:
        *outer, last = self.order
        length = self.operand.shape[last]
        lines = self.operand.numel // length
        at_once = max(1, _CHUNK // length)
        count, step = self.kernel.own_index(lines), self.kernel.own_index(at_once)
        text = f"""
  const idx begin = (idx)GROUP(0) * {step}, end = {count} - begin < {step} ? {count} : begin + {step};
  for (idx line = begin; line < end; ++line) {{
  {coordinates("line", self._sizes[:-1], [f"c{d}" for d in outer])}
  for (idx c{last} = 0; c{last} < {self._sizes[-1]}; ++c{last}) {{
{body}
  }}
  }}"""
        return self.kernel.launch(text, (-(-lines // at_once),), (1,))


def _lowest(dtype: str) -> float:
    if dtype.startswith(("float", "bfloat")):
        return -math.inf
    return 0 if dtype.startswith("uint") else -(2 ** (8 * ITEMSIZE[dtype] - 1))


@template("max_pool2d_with_indices")
def max_pool2d(call: Call) -> LaunchPlan:
    """Maximum of each window and its place in the plane. NaN wins; of equals the first, as in PyTorch."""
    (out, where), x = call.outputs, call.inputs[0]
    kernel, stride, padding, dilation = call.params[:4]
    k = Kernel(call, "max_pool")
    values, places, source = k.output(0), k.output(1), k.input(0)
    c = accumulator(source.dtype)
    items = _Items(k, out)
    n = items.ndim - 2
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = (
        [k.own_index(v) for v in pair] for pair in (kernel, stride, padding, dilation)
    )
    h, w = k.own_index(x.shape[-2]), k.own_index(x.shape[-1])
    row, column = k.own_index(x.strides[-2]), k.own_index(x.strides[-1])
    better = "(value > best) | (value != value)" if c in REAL else "value > best"
    body = f"""
  const idx top = c{n} * {sh} - {ph}, left = c{n + 1} * {sw} - {pw};
  const idx plane = {items.place(x.strides, n)};
  idx y = top < 0 ? top + (-top + {dh} - 1) / {dh} * {dh} : top;
  const idx first = left < 0 ? left + (-left + {dw} - 1) / {dw} * {dw} : left;
  const idx below = top + {kh} * {dh}, beyond = left + {kw} * {dw};
  const idx bottom = below < {h} ? below : {h}, right = beyond < {w} ? beyond : {w};
  {c} best = {k.number(_lowest(source.dtype), c)};
  idx at = y * {w} + first;
  for (; y < bottom; y += {dh})
    for (idx x = first; x < right; x += {dw}) {{
      const {c} value = {source.load(f"plane + y * {row} + x * {column}", c)};
      const i32 better = {better};  // which of two is larger nobody foresees: no branch
      best = better ? value : best;
      at = better ? y * {w} + x : at;
    }}
  {values.store(items.place(out.strides), "best", c)}
  {places.store(items.place(where.strides), "(i64)at", "i64")}"""
    return LaunchPlan([items.launch(body)])


@template("max_pool2d_backward", fuses=(0,))
def max_pool2d_backward(call: Call) -> LaunchPlan:
    """Gradients added up at the places of the maxima. Windows may overlap: several may add to one element.

    On devices of few processors an item adds up one plane, in order. Elsewhere additions are atomic, and sums of
    more than one gradient may differ in the last bit from run to run.
    """
    out = call.outputs[0]
    narrow = name_of(out.dtype) not in ("float32", "float64")
    scratch = 4 * out.numel if narrow else 0
    if call.device.serial:
        return LaunchPlan([_sum_planes(call, narrow)], scratch)
    launches = [_clear(call, narrow), _add_atomically(call, narrow)]
    return LaunchPlan([*launches, _cast(call)] if narrow else launches, scratch)


class _Sums:
    """Where gradients are added up: the output, or float32 scratch memory for outputs of fewer bits."""

    def __init__(self, k: Kernel, narrow: bool):
        out = k.call.outputs[0]
        n = len(out.shape)
        dense = tuple(math.prod(out.shape[d + 1 :]) for d in range(n))
        self.tensor: Tensor = k.workspace(0, "float32") if narrow else k.output(0)
        self.strides: Sequence[int] = dense if narrow else out.strides
        self.c = "f64" if self.tensor.dtype == "float64" else "f32"
        self.width = k.own_index(out.shape[-1])
        self.row, self.column = k.own_index(self.strides[-2]), k.own_index(self.strides[-1])
        self._even = out.shape[-2] == 1 or self.strides[-2] == out.shape[-1] * self.strides[-1]

    def at(self, plane: str, place: str) -> str:
        """Where the element ``place`` of a plane is: without divisions where its lines follow one another."""
        if self._even:
            return f"{plane} + {place} * {self.column}"
        return f"{plane} + {place} / {self.width} * {self.row} + {place} % {self.width} * {self.column}"


def _sum_planes(call: Call, narrow: bool) -> Launch:
    out, (grad, where) = call.outputs[0], call.inputs
    k = Kernel(call, "max_pool_backward")
    sums, target = _Sums(k, narrow), k.output(0) if narrow else None
    given, places = k.input(0), k.input(1)
    n = len(out.shape) - 2
    planes, size = math.prod(out.shape[:n]), math.prod(out.shape[n:])
    at_once = max(1, _CHUNK // max(size, 1))
    limit, step = k.own_index(planes), k.own_index(at_once)
    digits = coordinates("number", [k.own_index(s) for s in out.shape[:n]], [f"c{d}" for d in range(n)])

    def start(strides: Sequence[int]) -> str:
        return " + ".join(f"c{d} * {k.own_index(strides[d])}" for d in range(n))

    def inside(operand: Any) -> str:
        return f"y * {k.own_index(operand.strides[-2])} + x * {k.own_index(operand.strides[-1])}"

    element = sums.at("to", "e")
    count, height, width = k.own_index(size), k.own_index(grad.shape[-2]), k.own_index(grad.shape[-1])
    finish = ""
    if target is not None:
        line, column = k.own_index(out.strides[-2]), k.own_index(out.strides[-1])
        final = f"{start(out.strides)} + e / {sums.width} * {line} + e % {sums.width} * {column}"
        finish = (
            f"for (idx e = 0; e < {count}; e++) {{ {target.store(final, sums.tensor.load(element, sums.c), sums.c)} }}"
        )
    body = f"""
  const idx first = (idx)GROUP(0) * {step}, last = {limit} - first < {step} ? {limit} : first + {step};
  for (idx number = first; number < last; number++) {{
  {digits}
  const idx to = {start(sums.strides)}, from = {start(grad.strides)}, found = {start(where.strides)};
  for (idx e = 0; e < {count}; e++) {{ {sums.tensor.store(element, "0", sums.c)} }}
  for (idx y = 0; y < {height}; y++)
    for (idx x = 0; x < {width}; x++) {{
      const idx place = (idx){places.load(f"found + {inside(where)}", "i64")};
      const idx at = {sums.at("to", "place")};
      const {sums.c} value = {given.load(f"from + {inside(grad)}", sums.c)};
      {sums.tensor.store("at", f"{sums.tensor.load('at', sums.c)} + value", sums.c)}
    }}
  {finish}
  }}
"""
    return k.launch(body, (-(-planes // at_once),), (1,))


def _clear(call: Call, narrow: bool) -> Launch:
    k = Kernel(call, "max_pool_clear")
    sums, items = _Sums(k, narrow), _Items(k, call.outputs[0])
    return items.launch(f"  {sums.tensor.store(items.place(sums.strides), '0', sums.c)}")


def _cast(call: Call) -> Launch:
    k = Kernel(call, "max_pool_cast")
    out = call.outputs[0]
    sums, target, items = _Sums(k, True), k.output(0), _Items(k, out)
    value = sums.tensor.load(items.place(sums.strides), sums.c)
    return items.launch(f"  {target.store(items.place(out.strides), value, sums.c)}")


def _add_atomically(call: Call, narrow: bool) -> Launch:
    grad, where = call.inputs
    k = Kernel(call, "max_pool_scatter")
    sums, given, places, items = _Sums(k, narrow), k.input(0), k.input(1), _Items(k, grad)
    bits, word = ("64", "u64") if sums.c == "f64" else ("32", "u32")
    body = f"""
  const idx place = (idx){places.load(items.place(where.strides), "i64")};
  const idx at = {sums.at(f"({items.place(sums.strides, items.ndim - 2)})", "place")};
  const {sums.c} value = {given.load(items.place(grad.strides), sums.c)};
  GLOBAL {word}* const p = (GLOBAL {word}*){sums.tensor.pointer} + at;
  {word} before = *p, seen;
  for (;;) {{
    seen = CAS{bits}(p, before, AS_U{bits}(AS_F{bits}(before) + value));
    if (seen == before) break;
    before = seen;
  }}"""
    return items.launch(body)


class _Average:
    """Numbers of average pooling as fields of a kernel, and what a window divides by."""

    def __init__(self, k: Kernel, plane: Sequence[int], params: Sequence[Any]):
        kernel, stride, padding, _, self.include_padding, self.divisor = params
        pairs = ([k.own_index(v) for v in pair] for pair in (kernel, stride, padding, plane))
        self.kernel, self.stride, self.padding, self.plane = pairs
        self.own_divisor = None if self.divisor is None else k.own_index(self.divisor)

    def window(self, d: int, o: str, name: str) -> str:
        """Statements: from where to where window ``o`` reaches inside along dim ``d``, and over how many elements."""
        low, size, pad = f"{name}_low", self.plane[d], self.padding[d]
        end = f"{name}_end"
        extent = f"{end} - {low}"
        text = (
            f"idx {low} = {o} * {self.stride[d]} - {pad}, {end} = {low} + {self.kernel[d]}; "
            f"if ({end} > {size} + {pad}) {end} = {size} + {pad};"
        )
        clip = f"if ({low} < 0) {low} = 0; if ({end} > {size}) {end} = {size};"
        count = f"const idx {name}_count = {extent};"
        return f"{text} {count} {clip}" if self.include_padding else f"{text} {clip} {count}"

    def reached(self, d: int, at: str, name: str, windows: str) -> str:
        """Statements: the windows that hold element ``at`` along dim ``d``, from ``name_first`` to ``name_last``."""
        ahead = f"{at} + {self.padding[d]} - {self.kernel[d]}"
        last = f"({at} + {self.padding[d]}) / {self.stride[d]}"
        return (
            f"const idx {name}_first = {ahead} < 0 ? 0 : ({ahead}) / {self.stride[d]} + 1; "
            f"idx {name}_last = {last}; if ({name}_last >= {windows}) {name}_last = {windows} - 1;"
        )

    def average(self, value: str, c: str) -> str:
        """A sum over the window of ``y`` and ``x`` divided."""
        return f"{value} / ({c})({self.own_divisor or 'y_count * x_count'})"


@template("avg_pool2d")
def avg_pool2d(call: Call) -> Any:
    """Mean of each window, of floating values."""
    out, x = call.outputs[0], call.inputs[0]
    k = Kernel(call, "avg_pool")
    target, source = k.output(0), k.input(0)
    c = accumulator(source.dtype)
    if c not in REAL:
        return NotImplemented
    items = _Items(k, out)
    n = items.ndim - 2
    a = _Average(k, x.shape[-2:], call.params)
    row, column = k.own_index(x.strides[-2]), k.own_index(x.strides[-1])
    body = f"""
  {a.window(0, f"c{n}", "y")}
  {a.window(1, f"c{n + 1}", "x")}
  const idx plane = {items.place(x.strides, n)};
  {c} sum = 0;
  for (idx y = y_low; y < y_end; y++)
    for (idx x = x_low; x < x_end; x++) sum += {source.load(f"plane + y * {row} + x * {column}", c)};
  {target.store(items.place(out.strides), a.average("sum", c), c)}"""
    return LaunchPlan([items.launch(body)])


@template("avg_pool2d_backward")
def avg_pool2d_backward(call: Call) -> Any:
    """Each gradient shared out over its window, gathered by the elements of the input, on serial devices by lines."""
    out, grad = call.outputs[0], call.inputs[0]
    k = Kernel(call, "avg_pool_backward")
    target, source = k.output(0), k.input(0)
    c = accumulator(source.dtype)
    if c not in REAL:
        return NotImplemented
    if call.device.serial and target.dtype in ("float32", "float64"):
        return LaunchPlan([_share_lines(k, target, source, c)])
    items = _Items(k, out)
    n = items.ndim - 2
    a = _Average(k, out.shape[-2:], call.params[1:])
    limits = [k.own_index(size) for size in grad.shape[-2:]]
    row, column = k.own_index(grad.strides[-2]), k.own_index(grad.strides[-1])

    body = f"""
  {a.reached(0, f"c{n}", "v", limits[0])}
  {a.reached(1, f"c{n + 1}", "u", limits[1])}
  const idx plane = {items.place(grad.strides, n)};
  {c} sum = 0;
  for (idx v = v_first; v <= v_last; v++) {{
    {a.window(0, "v", "y")}
    for (idx u = u_first; u <= u_last; u++) {{
      {a.window(1, "u", "x")}
      sum += {a.average(source.load(f"plane + v * {row} + u * {column}", c), c)};
    }}
  }}
  {target.store(items.place(out.strides), "sum", c)}"""
    return LaunchPlan([items.launch(body)])


def _share_lines(k: Kernel, target: Tensor, source: Tensor, c: str) -> Launch:
    """An item takes lines of the input, and adds to each what the windows over it share out, one after another."""
    out, grad = k.call.outputs[0], k.call.inputs[0]
    n = len(out.shape) - 2
    a = _Average(k, out.shape[-2:], k.call.params[1:])
    width = a.plane[1]
    many = math.prod(out.shape[:-1])
    at_once = max(1, _CHUNK // out.shape[-1])
    count, step = k.own_index(many), k.own_index(at_once)
    names = [f"c{d}" for d in range(n + 1)]
    to, given = (
        " + ".join(f"{name} * {k.own_index(s)}" for name, s in zip(names[:last], x.strides, strict=False)) or "0"
        for last, x in ((n + 1, out), (n, grad))
    )
    windows = [k.own_index(size) for size in grad.shape[-2:]]
    row, column, by = k.own_index(grad.strides[-2]), k.own_index(grad.strides[-1]), k.index(out.strides[-1])
    body = f"""
  const idx begin = (idx)GROUP(0) * {step}, end = {count} - begin < {step} ? {count} : begin + {step};
  for (idx line = begin; line < end; ++line) {{
  {coordinates("line", [k.own_index(s) for s in out.shape[:-1]], names)}
  GLOBAL {c}* const to = (GLOBAL {c}*)({target.pointer}) + {to};
  const idx plane = {given};
  for (idx x = 0; x < {width}; x++) to[x * {by}] = 0;
  {a.reached(0, names[n], "v", windows[0])}
  for (idx v = v_first; v <= v_last; v++) {{
    {a.window(0, "v", "y")}
    for (idx u = 0; u < {windows[1]}; u++) {{
      {a.window(1, "u", "x")}
      const {c} share = {a.average(source.load(f"plane + v * {row} + u * {column}", c), c)};
      for (idx x = x_low; x < x_end; x++) to[x * {by}] += share;
    }}
  }}
  }}"""
    return k.launch(body, (-(-many // at_once),), (1,))
