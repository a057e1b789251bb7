"""``functorch.einops``."""

from tesserack.func import rearrange

__all__ = ["rearrange"]
