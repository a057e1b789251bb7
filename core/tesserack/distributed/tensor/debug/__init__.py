"""What DTensors do: the collectives of a piece of code, operators that had no sharding rule."""

from tesserack.distributed.tensor._dispatch import fallbacks

__all__ = ["fallbacks"]
