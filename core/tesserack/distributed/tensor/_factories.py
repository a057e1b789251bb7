"""Whole tensors and modules onto a mesh, and DTensors made where they are to lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed.device_mesh import DeviceMesh
from tesserack.distributed.tensor import _comm
from tesserack.distributed.tensor._api import DTensor, _mesh, wrapped
from tesserack.distributed.tensor._random import drawn
from tesserack.distributed.tensor._redistribute import shard_of
from tesserack.distributed.tensor._spec import DTensorSpec, TensorMeta, dense_stride, normalized
from tesserack.distributed.tensor.placement_types import Placement, Replicate

__all__ = ["distribute_module", "distribute_tensor", "empty", "full", "ones", "rand", "randn", "zeros"]


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """A leaf tensor that every rank has, placed on a mesh; by default each dim of the mesh replicates it.

    The values are those of the rank at ``src_data_rank`` along each dim of the mesh; with None each rank keeps its part
    of its own, and nothing is communicated. An empty DTensor is made of a tensor on ``meta``.

    >>> import tesserack as ts
    >>> from tesserack.distributed.tensor import Shard
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> mesh = ts.distributed.init_device_mesh("cpu", (1,))
    >>> distribute_tensor(ts.arange(4), mesh, [Shard(0)]).to_local()
    tensor([0, 1, 2, 3])
    >>> ts.distributed.destroy_process_group()
    """
    mesh = _mesh(device_mesh)
    placed = normalized("distribute_tensor", mesh, placements, tensor.ndim, partial=False)
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh:
            raise ValueError(
                f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different device mesh {mesh}."
            )
        if tensor.placements != placed:
            raise ValueError(
                f"Cannot distribute a DTensor with placements {tensor.placements} to a different placements {placed}. "
                "Do you want to call `redistribute` instead?"
            )
        return tensor
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    whole = tensor.detach()
    if whole.device.type not in (mesh.device_type, "meta"):
        whole = whole.to(mesh.device_type)
    if not whole.is_meta and src_data_rank is not None and mesh.get_coordinate() is not None:
        whole = _given_by(whole, mesh, src_data_rank)
    meta = TensorMeta(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
    made = wrapped(shard_of(whole, mesh, placed), DTensorSpec(mesh, placed, meta), tensor.requires_grad)
    if isinstance(tensor, ts.nn.Parameter):
        return ts.nn.Parameter(made, requires_grad=tensor.requires_grad)  # type: ignore[return-value]
    return made


def _given_by(whole: Tensor, mesh: DeviceMesh, source: int) -> Tensor:
    if mesh.size() == 1:
        return whole
    whole = whole.clone(memory_format=ts.contiguous_format)
    for mesh_dim in range(mesh.ndim):
        if mesh.size(mesh_dim) > 1:
            _comm.broadcast(whole, mesh.get_group(mesh_dim), source)
    return whole


def distribute_module(
    module: Any,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Any, DeviceMesh], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> Any:
    """A module's parameters and buffers as DTensors: ``partition_fn(name, module, mesh)`` places those of each
    submodule, and what it leaves is replicated. ``input_fn(module, inputs, mesh)`` and
    ``output_fn(module, outputs, mesh)`` change what comes and what goes.
    """
    mesh = _mesh(device_mesh)
    if getattr(module, "_distribute_module_applied", False):
        raise RuntimeError(
            "distribute_module should only be called once on a module, but it has already been called on this module!"
        )
    for name, part in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, part, mesh)
        _replicate_rest(part, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda m, inputs: input_fn(m, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda m, inputs, outputs: output_fn(m, outputs, mesh))
    module._distribute_module_applied = True
    return module


def _replicate_rest(module: Any, mesh: DeviceMesh) -> None:
    everywhere = [Replicate()] * mesh.ndim
    for name, param in module._parameters.items():
        if param is not None and not isinstance(param, DTensor):
            placed = distribute_tensor(param.detach(), mesh, everywhere)
            module.register_parameter(name, ts.nn.Parameter(placed, requires_grad=param.requires_grad))
    for name, buffer in module._buffers.items():
        if buffer is not None and not isinstance(buffer, DTensor):
            module._buffers[name] = distribute_tensor(buffer, mesh, everywhere)


def _made(
    op: str,
    draw: Callable[[Sequence[int]], Tensor] | None,
    fill: Callable[[Sequence[int]], Tensor],
    size: Any,
    options: Any,
) -> DTensor:
    mesh = _mesh(options.pop("device_mesh", None))
    shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size)
    placed = normalized(op, mesh, options.pop("placements", None), len(shape), partial=False)
    dtype = options.pop("dtype", None) or ts.get_default_dtype()
    requires_grad = options.pop("requires_grad", False)
    if options.pop("layout", ts.strided) is not ts.strided:
        raise ValueError(f"{op}: expected the layout strided")
    if options:
        raise TypeError(f"{op}: unexpected keywords {', '.join(options)}")
    spec = DTensorSpec(mesh, placed, TensorMeta(shape, dense_stride(shape), dtype))
    if draw is not None:
        local = drawn(spec, lambda whole: draw(whole).to(dtype))
    else:
        local = fill(spec.local_shape()).to(dtype)
    return wrapped(local, spec, requires_grad)


def _factory(name: str, values: str, random: bool = False) -> Callable[..., DTensor]:
    def factory(*size: Any, **options: Any) -> DTensor:
        mesh, dtype = _mesh(options.get("device_mesh")), options.get("dtype")
        make = getattr(ts, name)

        def fill(shape: Sequence[int]) -> Tensor:
            made: Tensor = make(tuple(shape), dtype=dtype, device=mesh.device_type)
            return made

        return _made(name, fill if random else None, fill, size, options)

    factory.__name__ = factory.__qualname__ = name
    factory.__doc__ = f"""A DTensor of {values}: ``{name}(2, 3, dtype=None, device_mesh=mesh, placements=[Shard(0)])``.

    Each rank makes its part. Placements are Replicate by default, the mesh is the one entered by ``with``.
    """
    return factory


zeros = _factory("zeros", "zeros")
ones = _factory("ones", "ones")
empty = _factory("empty", "whatever memory holds")
rand = _factory("rand", "random numbers below 1, which one process would draw as well", random=True)
randn = _factory("randn", "normal random numbers, which one process would draw as well", random=True)


def full(size: Any, fill_value: Any, **options: Any) -> DTensor:
    """A DTensor of one number, as :func:`zeros`."""
    mesh = _mesh(options.get("device_mesh"))
    dtype = options.get("dtype") or ts.full((), fill_value).dtype
    options["dtype"] = dtype
    shape = (size,) if isinstance(size, int) else tuple(size)
    return _made(
        "full", None, lambda s: ts.full(tuple(s), fill_value, dtype=dtype, device=mesh.device_type), (shape,), options
    )
