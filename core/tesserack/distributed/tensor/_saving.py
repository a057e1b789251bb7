"""What files hold of DTensors: this rank's part, and plain data that says where in the whole it lies."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed.device_mesh import mesh_of
from tesserack.distributed.tensor._api import DTensor, answers, wrapped
from tesserack.distributed.tensor._spec import DTensorSpec, TensorMeta, normalized
from tesserack.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, _StridedShard

__all__ = ["outline", "rebuilt"]


def outline(x: DTensor) -> list[Any]:
    """Device type, ranks, names of the mesh's dims, placements, shape, strides, whether a gradient is wanted, whether
    it is a parameter."""
    mesh = x.device_mesh
    names = None if mesh.mesh_dim_names is None else list(mesh.mesh_dim_names)
    placed = [_told(p) for p in x.placements]
    marks = [x.requires_grad, bool(getattr(x, "_is_param", False))]
    return [mesh.device_type, mesh.mesh.tolist(), names, placed, list(x.shape), list(x.stride()), *marks]


def _told(placement: Placement) -> list[Any]:
    if isinstance(placement, _StridedShard):
        return ["strided", placement.dim, placement.split_factor]
    if isinstance(placement, Shard):
        return ["shard", placement.dim]
    return ["partial", placement.reduce_op] if isinstance(placement, Partial) else ["replicate"]


def _placement(told: Any) -> Placement:
    kind, *numbers = told
    if kind == "strided" and len(numbers) == 2 and all(type(n) is int and n >= 0 for n in numbers):
        return _StridedShard(numbers[0], split_factor=numbers[1])
    if kind == "shard" and len(numbers) == 1 and type(numbers[0]) is int and numbers[0] >= 0:
        return Shard(numbers[0])
    if kind == "partial" and len(numbers) == 1:
        return Partial(numbers[0])
    if kind == "replicate" and not numbers:
        return Replicate()
    raise ValueError(f"a DTensor: expected a placement, got {told!r:.60}")


def rebuilt(local: Any, device_type: Any, ranks: Any, names: Any, placed: Any, *rest: Any) -> DTensor:
    """The DTensor of an :func:`outline`, over this memory. ``ValueError`` for what does not fit."""
    shape, stride, requires_grad, is_param = rest
    numbers = [*shape, *stride]
    if not isinstance(local, Tensor) or isinstance(local, DTensor) or not isinstance(device_type, str):
        raise ValueError("a DTensor: expected a tensor and a kind of device")
    if len(shape) != len(stride) or any(type(n) is not int or not 0 <= n < 2**62 for n in numbers):
        raise ValueError(f"a DTensor: expected sizes and strides, got {shape!r:.60} and {stride!r:.60}")
    mesh = mesh_of(device_type, ts.tensor(ranks, dtype=ts.int64), None if names is None else tuple(map(str, names)))
    placements = normalized("a DTensor", mesh, [_placement(p) for p in placed], len(shape))
    spec = DTensorSpec(mesh, placements, TensorMeta(tuple(shape), tuple(stride), local.dtype))
    if mesh.get_coordinate() is not None and tuple(local.shape) != spec.local_shape():
        raise ValueError(f"a DTensor: expected a part of shape {spec.local_shape()}, got {tuple(local.shape)}")
    made = wrapped(local.detach(), spec, bool(requires_grad) and local.is_floating_point())
    if is_param is True:
        made._is_param = True  # type: ignore[attr-defined]
    return made


answers.update(outline=outline, rebuilt=rebuilt)
