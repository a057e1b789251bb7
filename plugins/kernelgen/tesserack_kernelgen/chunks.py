"""Elements in order on serial devices: an item is a loop over enough of them that launching it costs little."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tesserack.backends import Launch

    from tesserack_kernelgen.kernel import Kernel

__all__ = ["CHUNK", "launch_chunks"]

CHUNK = 2048  # elements of an item, at least


def launch_chunks(kernel: Kernel, n: int, loop: str, helpers: str = "") -> Launch:
    """For serial devices: an item walks from ``begin`` to ``end`` of ``n`` elements; enough items for all units."""
    units = 4 * kernel.call.device.compute_units
    chunk = min(max(-(-n // units) + 63 & -64, CHUNK), 8 * CHUNK)
    count, step = kernel.own_index(n), kernel.own_index(chunk)
    body = f"""  const idx begin = (idx)GROUP(0) * {step};
  const idx end = {count} - begin < {step} ? {count} : begin + {step};
  {loop}"""
    return kernel.launch(body, (-(-n // chunk),), (1,), helpers)
