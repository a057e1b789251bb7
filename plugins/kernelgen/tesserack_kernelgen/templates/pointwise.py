"""Pointwise programs, copies with a cast, and filling: one loop over elements, however they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tesserack.backends import LaunchPlan

from tesserack_kernelgen.card import Call
from tesserack_kernelgen.dtypes import ITEMSIZE, LOADED, REAL, name_of, register
from tesserack_kernelgen.emit import program_text
from tesserack_kernelgen.kernel import Kernel, Tensor
from tesserack_kernelgen.layout import contiguous, coordinates, merge, uniform

__all__ = ["Elementwise", "copy_cast", "fill", "iota", "pointwise"]


@dataclass
class Elementwise:
    """A loop over elements of operands that all have the same sizes.

    ``strides`` has those of each operand; ``body`` gets an index into each, expressions of type ``idx``, and gives the
    statements for one element. ``widths`` are bytes of an element for operands that may be loaded by vectors, if all.
    """

    kernel: Kernel
    sizes: Sequence[int]
    strides: Sequence[Sequence[int]]
    body: Callable[[list[str]], str]
    helpers: str = ""

    def plan(self) -> LaunchPlan:
        """The launch: by lines where everything is contiguous, else over a grid of two dimensions."""
        sizes, strides = merge(self.sizes, *self.strides)
        flat = len(sizes) <= 1 and all(contiguous(sizes, s) or uniform(sizes, s) for s in strides)
        return LaunchPlan([self._flat(sizes, strides) if flat else self._grid(sizes, strides)])

    def _flat(self, sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Any:
        device = self.kernel.call.device
        n = sizes[0] if sizes else 1
        count = self.kernel.own_index(n)
        at = ["0" if uniform(sizes, s) else "i" for s in strides]
        body = (
            f"  const idx i = (idx)GROUP(0) * {device.group} + LANE(0);\n  if (i >= {count}) return;\n{self.body(at)}"
        )
        return self.kernel.launch(body, (-(-n // device.group),), (device.group,), self.helpers)

    def _grid(self, sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Any:
        kernel, group = self.kernel, self.kernel.call.device.group
        *outer, inner = sizes
        rows = 1
        for size in outer:
            rows *= size
        across = min(group, 1 << (inner - 1).bit_length())
        down = group // across
        tiles = -(-inner // across)
        d = len(outer)
        size_names = [kernel.own_index(size) for size in sizes]
        count, wide = kernel.own_index(rows), kernel.own_index(tiles)
        names = [f"c{k}" for k in range(d)]
        at = []
        for steps in strides:
            terms = [
                f"{name} * {kernel.own_index(step)}" for name, step in zip((*names, "i"), steps, strict=True) if step
            ]
            at.append(" + ".join(terms) or "0")
        body = (
            f"  const idx i = (idx)GROUP(0) % {wide} * {across} + LANE(0);\n"
            f"  const idx j = (idx)GROUP(0) / {wide} * {down} + LANE(1);\n"
            f"  if (i >= {size_names[-1]} || j >= {count}) return;\n"
            f"  {coordinates('j', size_names[:-1], names)}\n{self.body(at)}"
        )
        return kernel.launch(body, (tiles * -(-rows // down),), (across, down), self.helpers)


def pointwise(call: Call) -> LaunchPlan:
    """``out_k = program(in...)``, several outputs in one loop."""
    c = register(call.compute)
    kernel = Kernel(call, "pointwise")
    outputs = [kernel.output(k) for k in range(len(call.outputs))]
    inputs = [kernel.input(k) if hasattr(x, "strides") else kernel.scalar(k, c) for k, x in enumerate(call.inputs)]
    loaded = [f"x{k}" if isinstance(x, Tensor) else x for k, x in enumerate(inputs)]
    lines, values, helpers = program_text(call.program, loaded, c, lambda divisor: kernel.fault("division", "0"))

    def body(at: list[str]) -> str:
        text = [
            f"  const {c} x{k} = {x.load(at[len(outputs) + k], c)};"
            for k, x in enumerate(inputs)
            if isinstance(x, Tensor)
        ]
        text += [f"  {line}" for line in lines]
        text += [f"  {out.store(at[k], values[k], c)}" for k, out in enumerate(outputs)]
        return "\n".join(text)

    sizes = call.outputs[0].shape
    absent = (0,) * len(sizes)
    strides = [x.strides if hasattr(x, "strides") else absent for x in (*call.outputs, *call.inputs)]
    return Elementwise(kernel, sizes, strides, body, helpers).plan()


def copy_cast(call: Call) -> LaunchPlan:
    """``out = cast(in)``; bit for bit where the dtypes are one."""
    out, x = call.outputs[0], call.inputs[0]
    kernel = Kernel(call, "copy_cast")
    target = kernel.output(0)
    if not hasattr(x, "strides"):
        c = _number_type(name_of(out.dtype))
        value = kernel.scalar(0, c)
        return Elementwise(kernel, out.shape, [out.strides], lambda at: "  " + target.store(at[0], value, c)).plan()
    source = kernel.input(0)
    if source.dtype == target.dtype:
        bits = f"u{8 * ITEMSIZE[source.dtype]}"

        def move(at: list[str]) -> str:
            to, start = (f"((GLOBAL {bits}*)({x.pointer}))[{i}]" for x, i in zip((target, source), at, strict=True))
            return f"  {to} = {start};"

        return Elementwise(kernel, out.shape, [out.strides, x.strides], move).plan()
    c = LOADED[source.dtype]

    def cast(at: list[str]) -> str:
        return "  " + target.store(at[0], source.load(at[1], c), c)

    return Elementwise(kernel, out.shape, [out.strides, x.strides], cast).plan()


def _number_type(dtype: str) -> str:
    """The C type that a number for a dtype is passed as."""
    if dtype == "float64":
        return "f64"
    if dtype in ("float16", "bfloat16", "float32"):
        return "f32"
    return "u64" if dtype == "uint64" else "i64"


def fill(call: Call) -> LaunchPlan:
    """``out = params[0]``."""
    out = call.outputs[0]
    kernel = Kernel(call, "fill")
    target = kernel.output(0)
    c = _number_type(target.dtype)
    number = kernel.param(0, c)
    return Elementwise(kernel, out.shape, [out.strides], lambda at: "  " + target.store(at[0], number, c)).plan()


def iota(call: Call) -> LaunchPlan:
    """``out[i] = params[0] + i * params[1]``."""
    out = call.outputs[0]
    kernel = Kernel(call, "iota")
    target = kernel.output(0)
    c = _number_type(target.dtype)
    if c in REAL and call.device.fp64:
        c = "f64"
    base, by = kernel.param(0, c), kernel.param(1, c)
    step_out = kernel.own_index(out.strides[0])
    count = kernel.own_index(out.numel)
    group = call.device.group
    body = (
        f"  const idx i = (idx)GROUP(0) * {group} + LANE(0);\n  if (i >= {count}) return;\n"
        f"  {target.store(f'i * {step_out}', f'{base} + ({c})i * {by}', c)}"
    )
    return LaunchPlan([kernel.launch(body, (-(-out.numel // group),), (group,))])
