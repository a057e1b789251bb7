"""Binary search of many values in sorted rows."""

from __future__ import annotations

from tesserack.backends import LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import accumulator
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.templates._chunks import launch_chunks
from tesserack_kernelgen.templates._registry import template

__all__ = ["searchsorted"]

_BESIDE = 32  # searches of one item of a serial device, enough that compilers make gathers of their loop


@template("searchsorted")
def searchsorted(call: Call) -> LaunchPlan:
    """``out0`` = how many of ``in0``, ``(n,)`` or ``(..., n)``, come before each of ``in1``.

    Those less than it do, or where ``params[0]`` says so those not greater. Comparisons are negated, so that NaN comes
    after all. All operands are contiguous.
    """
    (found,), (keys, values) = call.outputs, call.inputs
    kernel = Kernel(call, "searchsorted")
    to, source, wanted = kernel.output(0), kernel.input(0), kernel.input(1)
    c = accumulator(source.dtype)
    n, count = kernel.own_index(keys.shape[-1]), kernel.own_index(found.numel)
    # One row for all values is a row of all values.
    per_row = kernel.own_index(found.numel if keys.ndim == 1 else values.shape[-1])
    sign = ">" if call.params[0] else ">="

    group, w = (1, _BESIDE) if call.device.serial else (call.device.group, 1)
    each = f"UNROLL for (i32 j = 0; j < {w}; ++j)"
    search = f"""const idx row = i / {per_row}, base = row * {n}, left = (row + 1) * {per_row} - i;
    const idx stop = left < end - i ? left : end - i;
    const i32 many = stop < {w} ? (i32)stop : {w};
    idx low[{w}];
    {c} v[{w}];
    {each} {{
      v[j] = {wanted.load("i + (j < many ? j : 0)", c)};
      low[j] = base;
    }}
    for (idx length = {n}; length > 1;) {{
      const idx half_way = length / 2;
      {each} {{
        const {c} x = {source.load("low[j] + half_way - 1", c)};
        low[j] += x {sign} v[j] ? 0 : half_way;
      }}
      length -= half_way;
    }}
    for (i32 j = 0; j < many; ++j) {{
      const {c} x = {source.load("low[j]", c)};
      {to.store("i + j", f"(i64)(low[j] - base + (x {sign} v[j] ? 0 : 1))", "i64")}
    }}"""
    if call.device.serial:
        loop = f"for (idx i = begin; i < end;) {{\n    {search}\n    i += many;\n  }}"
        return LaunchPlan([launch_chunks(kernel, found.numel, loop)])
    body = f"""
  const idx i = (idx)GROUP(0) * {group} + LANE(0), end = {count};
  if (i >= end) return;
  {search}"""
    return LaunchPlan([kernel.launch(body, (-(-found.numel // group),), (group,))])
