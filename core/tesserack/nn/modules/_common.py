"""Small helpers shared by the layers."""

from __future__ import annotations

import math
from typing import Any

from tesserack import Tensor
from tesserack.nn import init


def to_tuple(value: Any, length: int) -> tuple[int, ...]:
    """One number repeated ``length`` times, or the given sequence."""
    if isinstance(value, int):
        return (value,) * length
    return tuple(value)


def uniform_bias_(bias: Tensor, fan_in: int) -> None:
    """Fill a bias uniformly in +-1/sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    init.uniform_(bias, -bound, bound)
