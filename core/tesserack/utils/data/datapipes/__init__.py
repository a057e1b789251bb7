"""Datasets that are built from one another: ``IterableWrapper(range(8)).filter(even).map(square).batch(2)``."""

from tesserack.utils.data.datapipes import datapipe, iter, map, utils

__all__ = ["datapipe", "iter", "map", "utils"]
