"""Copies that exchange dims, on serial devices: small squares are read along one dim and written along another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tesserack_kernelgen.dtypes import ITEMSIZE
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.layout import coordinates, merge

if TYPE_CHECKING:
    from tesserack.backends import Launch

    from tesserack_kernelgen.call import Call

__all__ = ["transposed"]

_SIDE = 8  # of a square whose elements are in registers
_BAND = 1024  # elements of an item along the output's last dim


def transposed(call: Call) -> Launch | None:
    """``out = in``, bit for bit, of an input whose neighbours lie along another dim than the output's; else None."""
    out, x = call.outputs[0], call.inputs[0]
    sizes, (to, given) = merge(out.shape, out.strides, x.strides)
    if not call.device.serial or len(sizes) < 2 or to[-1] != 1 or given[-1] < _SIDE or sizes[-1] < _SIDE:
        return None
    across = next((d for d, (size, step) in enumerate(zip(sizes, given, strict=True)) if step == 1), None)
    if across is None or sizes[across] < _SIDE:
        return None
    kernel = Kernel(call, "transpose")
    target, source = kernel.output(0), kernel.input(0)
    bits = f"u{8 * ITEMSIZE[source.dtype]}"
    others = [d for d in range(len(sizes) - 1) if d != across]
    bands = (sizes[across], -(-sizes[-1] // _BAND))
    down, wide = (kernel.own_index(-(-size // by)) for size, by in ((bands[0], _SIDE), (bands[1], 1)))
    names = [f"c{k}" for k in range(len(others))]
    digits = coordinates("rest", [kernel.own_index(sizes[d]) for d in others], names)
    place_to, place_from = (
        " + ".join(("0", *(f"{name} * {kernel.own_index(s[d])}" for name, d in zip(names, others, strict=True))))
        for s in (to, given)
    )
    tall, length = kernel.own_index(sizes[across]), kernel.own_index(sizes[-1])
    by_to, by_from = kernel.own_index(to[across]), kernel.own_index(given[-1])
    body = f"""
  const idx band = (idx)GROUP(0) % {wide} * {_BAND}, strip = (idx)GROUP(0) / {wide};
  const idx q0 = strip % {down} * {_SIDE}, rest = strip / {down};
  {digits}
  const idx end = {length} - band < {_BAND} ? {length} : band + {_BAND};
  GLOBAL {bits}* const to = (GLOBAL {bits}*)({target.pointer}) + {place_to} + q0 * {by_to};
  GLOBAL const {bits}* const from = (GLOBAL const {bits}*)({source.pointer}) + {place_from} + q0;
  const i32 many = {tall} - q0 < {_SIDE} ? (i32)({tall} - q0) : {_SIDE};
  idx i = band;
  if (many == {_SIDE}) for (; i + {_SIDE} <= end; i += {_SIDE}) {{
    {_square(bits, by_to, by_from)}
  }}
  for (i32 q = 0; q < many; ++q) for (idx e = i; e < end; ++e) to[q * {by_to} + e] = from[e * {by_from} + q];"""
    strips = -(-sizes[across] // _SIDE) * math.prod(sizes[d] for d in others)
    return kernel.launch(body, (strips * bands[1],), (1,))


def _square(bits: str, by_to: str, by_from: str) -> str:
    """Statements that turn a square: all is loaded before anything is stored, in names that become registers."""
    side = range(_SIDE)
    loads = (f"const {bits} r{e}_{q} = from[(i + {e}) * {by_from} + {q}];" for e in side for q in side)
    stores = (f"to[{q} * {by_to} + i + {e}] = r{e}_{q};" for q in side for e in side)
    return "\n    ".join((*loads, *stores))
