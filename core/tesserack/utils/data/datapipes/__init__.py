"""Datasets that are built from one another: ``IterableWrapper(range(8)).filter(even).map(square).batch(2)``."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tesserack.utils.data.datapipes import datapipe, iter, map, utils

__all__ = ["datapipe", "iter", "map", "utils"]


def __getattr__(name: str) -> object:
    if name in __all__:  # most programs use none
        import importlib

        return importlib.import_module(f"tesserack.utils.data.datapipes.{name}")
    raise AttributeError(f"module 'tesserack.utils.data.datapipes' has no attribute {name!r}")
