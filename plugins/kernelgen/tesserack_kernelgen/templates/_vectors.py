"""Pointwise loops in vectors of the dialect, functions of mathematics included: in order, or line by line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tesserack_kernelgen.chunks import CHUNK, launch_chunks
from tesserack_kernelgen.dtypes import ITEMSIZE, STORAGE, name_of
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.layout import coordinates, merge
from tesserack_kernelgen.vectors import STORED, costly, has_vectors, lanes_of, streams, vector_helpers, vector_program

if TYPE_CHECKING:
    from tesserack.backends import Launch

    from tesserack_kernelgen.call import Call

__all__ = ["by_vectors"]


def by_vectors(call: Call, program: Any) -> Launch | None:
    """``out_k = program(in...)`` in float32, or in float64 where the call computes with it; None where elements one by
    one are as well off, or vectors cannot."""
    c = "f64" if call.compute == "float64" else "f32"
    operands = [*call.outputs, *(x for x in call.inputs if hasattr(x, "strides"))]
    stored = [name_of(x.dtype) for x in call.outputs]
    if not has_vectors(call, program, c) or any(name not in STORED[c] for name in stored):
        return None
    sizes, strides = merge(call.outputs[0].shape, *(x.strides for x in operands))
    lanes = lanes_of(call, c)
    steps = [s[-1] if s else 1 for s in strides]
    length = sizes[-1] if sizes else 1
    in_order = all(step == 1 for step in steps[: len(stored)]) and all(step in (0, 1) for step in steps)
    if not costly(program) and (not in_order or (len(sizes) > 1 and length < lanes)):
        return None
    touched = sum(x.numel * ITEMSIZE[name_of(x.dtype)] for x in operands)
    streamed = in_order and streams(call, stored[0], c, touched)
    return _Loop(call, program, c, lanes, streamed).launch(sizes, strides, steps)


class _Loop:
    """The text of one loop."""

    def __init__(self, call: Call, program: Any, c: str, lanes: int, streamed: bool):
        self.call, self.program, self.c, self.lanes, self.streamed = call, program, c, lanes, streamed
        self.kernel = Kernel(call, "pointwise")

    def launch(self, sizes: Sequence[int], strides: Sequence[Sequence[int]], steps: Sequence[int]) -> Launch:
        if len(sizes) <= 1 and all(step in (0, 1) for step in steps):
            return self._in_order(sizes[0] if sizes else 1, steps)
        if len(sizes) == 1:  # one line is the first of several: the same text
            sizes, strides = (1, *sizes), [(0, *s) for s in strides]
        return self._by_lines(sizes, strides)

    def _in_order(self, n: int, steps: Sequence[int]) -> Launch:
        loop = self._vectors(["i" if step else "0" for step in steps], steps, "begin", "end") + self._end
        return launch_chunks(self.kernel, n, loop, self._helpers)

    def _by_lines(self, sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Launch:
        kernel, (*outer, inner) = self.kernel, sizes
        rows = 1
        for size in outer:
            rows *= size
        down = max(1, CHUNK // inner)
        tiles = -(-inner // CHUNK)
        size_names = [kernel.own_index(size) for size in sizes]
        count, wide, height = kernel.own_index(rows), kernel.own_index(tiles), kernel.own_index(down)
        names = [f"c{k}" for k in range(len(outer))]
        at = []
        for s in strides:
            terms = [f"{name} * {kernel.own_index(step)}" for name, step in zip(names, s, strict=False)]
            last = {0: [], 1: ["i"]}.get(s[-1])
            at.append(" + ".join([*terms, *(last if last is not None else [f"i * {kernel.own_index(s[-1])}"])]))
        body = f"""  const idx from = (idx)GROUP(0) % {wide} * {CHUNK}, first = (idx)GROUP(0) / {wide} * {height};
  const idx to = from + {CHUNK} < {size_names[-1]} ? from + {CHUNK} : {size_names[-1]};
  const idx last = first + {height} < {count} ? first + {height} : {count};
  for (idx j = first; j < last; ++j) {{
    {coordinates("j", size_names[:-1], names)}
    {self._vectors(at, [s[-1] for s in strides], "from", "to")}
  }}"""
        return kernel.launch(body + self._end, (tiles * -(-rows // down),), (1,), self._helpers)

    def _vectors(self, at: Sequence[str], steps: Sequence[int], begin: str, end: str) -> str:
        """The loop over a line, from ``begin`` to ``end``; ``at`` are the indices of element ``i``."""
        kernel, call = self.kernel, self.call
        outputs = [kernel.output(k) for k in range(len(call.outputs))]
        loads, names, nth = [], [], len(outputs)
        for k, x in enumerate(call.inputs):
            if not hasattr(x, "strides"):
                names.append(f"((V)({kernel.scalar(k, self.c)}))")
                continue
            tensor, step = kernel.input(k), self._step(steps[nth])
            one = f"(V)({tensor.load(at[nth], self.c)})"
            whole = f"load_{tensor.dtype}({tensor.pointer}, {at[nth]}, {step}, many)"
            loads.append(f"const V x{k} = {one if steps[nth] == 0 else whole};")
            names.append(f"x{k}")
            nth += 1
        lines, values = vector_program(self.program, names, self.c)
        stores = []
        for k, (out, value) in enumerate(zip(outputs, values, strict=True)):
            way = "stream" if self.streamed and STORAGE[out.dtype] == self.c else "store"
            stores.append(f"{way}_{out.dtype}({out.pointer}, {at[k]}, {self._step(steps[k])}, many, {value});")
        text = "\n    ".join((*loads, *lines, *stores))
        return f"""for (idx i = {begin}; i < {end}; i += {self.lanes}) {{
    const i32 many = {end} - i < {self.lanes} ? (i32)({end} - i) : {self.lanes};
    {text}
  }}"""

    def _step(self, step: int) -> str:
        return str(step) if step in (0, 1) else self.kernel.own_index(step)

    @property
    def _end(self) -> str:
        return "\n  STREAM_END;" if self.streamed else ""

    @property
    def _helpers(self) -> str:
        call = self.call
        loaded = [name_of(x.dtype) for x in call.inputs if hasattr(x, "strides")]
        stored = [name_of(x.dtype) for x in call.outputs]
        return vector_helpers(call, self.program, loaded, stored, self.streamed, self.lanes, self.c)
