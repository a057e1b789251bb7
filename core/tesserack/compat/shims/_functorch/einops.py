"""``torch._functorch.einops``: ``rearrange``."""

from tesserack.func import rearrange

__all__ = ["rearrange"]
