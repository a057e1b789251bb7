"""Small helpers shared by the layers."""

from __future__ import annotations

import math

from tesserack import Tensor
from tesserack.nn import init


def uniform_bias_(bias: Tensor, fan_in: int) -> None:
    """Fill a bias uniformly in +-1/sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    init.uniform_(bias, -bound, bound)
