"""Settings for all datapipes that a datapipe is made of: shuffling, seeds, shares of workers."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import tesserack as ts
from tesserack.utils.data.datapipes.iter.order import SHARDING_PRIORITIES
from tesserack.utils.data.graph import traverse_dps

__all__ = [
    "apply_random_seed",
    "apply_sharding",
    "apply_shuffle_seed",
    "apply_shuffle_settings",
    "get_all_graph_pipes",
]


def get_all_graph_pipes(graph: Any) -> list[Any]:
    """Every pipe of a graph of :func:`traverse_dps`, once.

    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> [type(pipe).__name__ for pipe in get_all_graph_pipes(traverse_dps(IterableWrapper([1]).map(abs)))]
    ['MapperIterDataPipe', 'IterableWrapperIterDataPipe']
    """
    found: dict[int, Any] = {}
    waiting = [graph]
    while waiting:
        for number, (pipe, sources) in waiting.pop(0).items():
            if number not in found:
                found[number] = pipe
                waiting.append(sources)
    return list(found.values())


def _has(pipe: Any, name: str) -> bool:
    return callable(pipe.__dict__.get(name, getattr(type(pipe), name, None)))


def apply_sharding(
    datapipe: Any, num_of_instances: int, instance_id: int, sharding_group: Any = SHARDING_PRIORITIES.DEFAULT
) -> Any:
    """Give every pipe that can share samples out (``apply_sharding``) its share; returns ``datapipe``.

    ``RuntimeError`` where one such pipe reads from another.
    """

    def apply(graph: Any, above: Any) -> None:
        for pipe, sources in graph.values():
            shares = _has(pipe, "apply_sharding")
            if shares:
                if above is not None:
                    raise RuntimeError(
                        "Sharding twice on a single pipeline is likely unintended and will cause data loss. Sharding "
                        f"already applied to {above} while trying to apply to {pipe}"
                    )
                takes_group = len(inspect.signature(pipe.apply_sharding).parameters) > 2
                group = {"sharding_group": sharding_group} if takes_group else {}
                pipe.apply_sharding(num_of_instances, instance_id, **group)
            apply(sources, pipe if shares else above)

    apply(traverse_dps(datapipe), None)
    return datapipe


def apply_shuffle_settings(datapipe: Any, shuffle: bool | None = None) -> Any:
    """Turn every shuffler on or off; where there is none and ``shuffle`` asks for one, it is put at the end."""
    if shuffle is None:
        return datapipe
    pipes = get_all_graph_pipes(traverse_dps(datapipe))
    shufflers = [pipe for pipe in pipes if _has(pipe, "set_shuffle") and _has(pipe, "set_seed")]
    if shuffle and not shufflers:
        warnings.warn(
            "`shuffle=True` was set, but the datapipe does not contain a `Shuffler`. Adding one at the end. "
            "Be aware that the default buffer size might not be sufficient for your task.",
            stacklevel=2,
        )
        datapipe = datapipe.shuffle()
        shufflers = [datapipe]
    for shuffler in shufflers:
        shuffler.set_shuffle(shuffle)
    return datapipe


def apply_shuffle_seed(datapipe: Any, rng: Any) -> Any:
    """:func:`apply_random_seed`, under its older name."""
    warnings.warn(
        "`apply_shuffle_seed` is deprecated since 1.12 and will be removed in the future releases. Please use "
        "`apply_random_seed` instead.",
        FutureWarning,
        stacklevel=2,
    )
    return apply_random_seed(datapipe, rng)


def apply_random_seed(datapipe: Any, rng: Any) -> Any:
    """Give every pipe that has ``set_seed`` a number drawn from the generator; returns ``datapipe``."""
    for pipe in get_all_graph_pipes(traverse_dps(datapipe)):
        if _has(pipe, "set_seed"):
            pipe.set_seed(int(ts.empty((), dtype=ts.int64).random_(generator=rng).item()))
    return datapipe
