"""PyTorch's random numbers of the cpu, bit by bit, in place of Tesserack's own, natively by :func:`switch` and
under the hook by ``compat.enable(random="torch")``.

Programs with results written into them reproduce these then. It holds in the thread that switches it on. Numbers are
drawn on the host, by NumPy, and copied to the device, which takes longer; a generator keeps its seed and how many words
of the stream it has taken, so that saving and setting states goes on working.

Of PyTorch's kernels for normal numbers in float32 it follows the one for AVX2, which all x86 processors of the last ten
years run. The gradient of Dirichlet variates stays that of the gamma variates that they are made of.
"""

from __future__ import annotations

from tesserack import _native
from tesserack.ops import random

__all__ = ["switch"]

_KEY = "TorchRandom"
_registered = False


def switch(on: bool) -> None:
    """Draw as PyTorch does in this thread, or no longer.

    >>> import tesserack as ts
    >>> switch(True)
    >>> draw = ts.rand(2, generator=ts.Generator().manual_seed(0))
    >>> switch(False)
    >>> draw
    tensor([0.4963, 0.7682])
    """
    global _registered
    if not _registered and not on:
        return
    from tesserack.ops.torch_random import _kernels, _rejection

    if not _registered:
        _kernels.register(_KEY)
        _registered = True
    _native._enable_key(_KEY, on)
    random.substitutes.samplers = _rejection.SAMPLERS if on else {}
