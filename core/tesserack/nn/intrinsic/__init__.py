"""Layers that are computed together once they are quantized, each under one name, in floating point."""

from tesserack.nn.intrinsic import fused
from tesserack.nn.intrinsic.fused import *  # noqa: F403

__all__ = [*fused.__all__]
