"""The mean of parameters over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _collectives as over
from tesserack.distributed._coalesced import _flattened, _spread, batches
from tesserack.distributed._reduce_op import ReduceOp
from tesserack.distributed._world import resolve

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]

BYTES_AT_ONCE = 25 << 20


def average_parameters(params: Iterable[Tensor], process_group: Any = None) -> None:
    """Put the mean over the ranks of a group in the place of each parameter. Outside of the group nothing happens."""
    if resolve(process_group) is None:
        return
    kinds: dict[Any, list[Tensor]] = {}
    for parameter in params:
        kinds.setdefault((parameter.dtype, str(parameter.device)), []).append(parameter)
    with ts.no_grad():
        for alike in kinds.values():
            for batch in batches(alike, BYTES_AT_ONCE):
                data = _flattened(batch)
                over.all_reduce(data, ReduceOp.AVG, process_group)
                _spread(data, batch)


def get_params_to_average(params: Iterable[Any]) -> list[Tensor]:
    """Those that have a gradient, of parameters or of an optimizer's groups."""
    return [p for p in _listed(params) if p.grad is not None]


def _listed(params: Iterable[Any]) -> Iterator[Tensor]:
    for each in params:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, dict):
            yield from each["params"]
        else:
            raise NotImplementedError(f"Parameter input of type {type(each)} is not supported")


def average_parameters_or_parameter_groups(params: Iterable[Any], process_group: Any = None) -> None:
    """:func:`average_parameters` of those that have a gradient."""
    average_parameters(get_params_to_average(params), process_group)
