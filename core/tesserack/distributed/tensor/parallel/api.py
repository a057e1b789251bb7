"""Plans of tensor parallelism, by names of submodules."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

from tesserack.distributed.device_mesh import DeviceMesh, current_mesh
from tesserack.distributed.tensor.parallel.style import ParallelStyle

__all__ = ["parallelize_module"]


def parallelize_module(
    module: Any,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Any:
    """Parallelize a module over a mesh of one dim (``mesh["tp"]`` of one with more), by a style, or by a plan: styles
    of submodules by their names, in which ``*``, ``?`` and ``[..]`` match within a part (``"layers.*.mlp.w1"``).

    Values of parameters are those of the rank ``src_data_rank`` of the mesh; with None each rank keeps its part of its
    own.

    >>> import tesserack as ts
    >>> from tesserack import nn
    >>> from tesserack.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> mesh = ts.distributed.init_device_mesh("cpu", (1,))
    >>> mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    >>> mlp = parallelize_module(mlp, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    >>> mlp[0].weight.placements, mlp[2].weight.placements, tuple(mlp(ts.ones(2, 4)).shape)
    ((Shard(dim=0),), (Shard(dim=1),), (2, 4))
    >>> ts.distributed.destroy_process_group()
    """
    mesh = device_mesh or current_mesh()
    if parallelize_plan is None:
        warnings.warn("parallelize_module: no parallelize_plan was given, so nothing is done", stacklevel=2)
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, Mapping):
        raise TypeError(
            "Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, "
            f"{type(parallelize_plan)} found!"
        )
    for path, style in parallelize_plan.items():
        _apply_at(module, mesh, path, style, src_data_rank)
    return module


def _apply_at(module: Any, mesh: DeviceMesh, path: str, style: Any, source: int | None) -> None:
    if not path:
        parallelize_module(module, mesh, style, src_data_rank=source)
        return
    token, _, rest = path.partition(".")
    found = [child for name, child in module.named_children() if fnmatch(name, token)]
    if not found:
        warnings.warn(
            f"Parallelize plan key '{path}' could not be resolved: no submodule matching token '{token}' in module "
            f"{module}, skipping this plan entry.",
            stacklevel=3,
        )
    for child in found:
        _apply_at(child, mesh, rest, style, source)
