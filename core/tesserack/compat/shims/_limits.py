"""``torch.finfo``: packages ask it for the 8-bit floats when they are imported. There are no tensors of those here."""

from __future__ import annotations

from typing import Any

import tesserack as ts

__all__ = ["finfo"]

# eps, the largest number, the exponent of the smallest normal one: as PyTorch says, also where its eps is doubtful
_EIGHT_BITS = {
    "float8_e4m3fn": (0.125, 448.0, -6),
    "float8_e4m3fnuz": (0.125, 240.0, -7),
    "float8_e5m2": (0.25, 57344.0, -14),
    "float8_e5m2fnuz": (0.125, 57344.0, -15),
}


class finfo(ts.finfo):
    """:class:`tesserack.finfo`, of the 8-bit floats too."""

    def __init__(self, type: Any = None) -> None:
        name = str(getattr(type, "__name__", ""))
        if name not in _EIGHT_BITS:
            super().__init__(type)
            return
        self.eps, self.max, exponent = _EIGHT_BITS[name]
        self.dtype, self.bits = name, 8
        self.min = -self.max
        self.smallest_normal = self.tiny = 2.0**exponent
        self.resolution = 1.0
