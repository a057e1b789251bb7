"""Which datapipes a datapipe is made of."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from tesserack.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = ["traverse", "traverse_dps"]

DataPipeGraph = dict[int, tuple[Any, "DataPipeGraph"]]


def traverse_dps(datapipe: Any) -> Any:
    """The pipe and, below it, those that it holds: ``{id(pipe): (pipe, {id(source): ...})}``.

    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> pipe = IterableWrapper([1]).map(abs)
    >>> ((found, sources),) = traverse_dps(pipe).values()
    >>> found is pipe, [type(source).__name__ for source, _ in sources.values()]
    (True, ['IterableWrapperIterDataPipe'])
    """
    return _graph(datapipe, set())


def traverse(datapipe: Any, only_datapipe: bool | None = None) -> Any:
    """:func:`traverse_dps`, under its older name; ``only_datapipe`` changes nothing."""
    if not isinstance(datapipe, (IterDataPipe, MapDataPipe)):
        raise TypeError(f"Expected `IterDataPipe` or `MapDataPipe`, but {type(datapipe)} is found")
    if only_datapipe is None:
        warnings.warn(
            "`traverse` function and will be removed after 1.13. Please use `traverse_dps` instead.",
            FutureWarning,
            stacklevel=2,
        )
    return traverse_dps(datapipe)


def _graph(pipe: Any, above: set[int]) -> Any:
    if not isinstance(pipe, (IterDataPipe, MapDataPipe)):
        raise RuntimeError(f"Expected `IterDataPipe` or `MapDataPipe`, but {type(pipe)} is found")
    if id(pipe) in above:
        return {}
    graph: dict[int, Any] = {}
    for source in _held(list(pipe.__dict__.values()), set()):
        graph.update(_graph(source, above | {id(pipe)}))
    return {id(pipe): (pipe, graph)}


def _held(value: Any, seen: set[int]) -> Iterator[Any]:
    """The pipes inside containers and plain objects; not what those pipes hold."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, (IterDataPipe, MapDataPipe)):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _held(item, seen)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _held(item, seen)
