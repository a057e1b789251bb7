"""``fully_shard``: a module's parameters divided over ranks, whole only while it computes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _world
from tesserack.distributed.device_mesh import DeviceMesh, init_device_mesh
from tesserack.distributed.fsdp._group import Kept, ParamGroup
from tesserack.distributed.fsdp._layouts import Divided, Whole
from tesserack.distributed.fsdp._leaves import divided_leaf, local_of
from tesserack.distributed.fsdp._places import Place, places_of
from tesserack.distributed.fsdp._policies import (
    CPUOffloadPolicy,
    DataParallelMeshDims,
    MixedPrecisionPolicy,
    OffloadPolicy,
)
from tesserack.distributed.fsdp._ranks import Ranks, chunk_sizes
from tesserack.distributed.fsdp._state import UnitState, states_of
from tesserack.nn.modules.module import Module

__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method", "share_comm_ctx"]

_classes: dict[type, type] = {}


class UnshardHandle:
    """What :meth:`FSDPModule.unshard` leaves when it is asynchronous."""

    def __init__(self, groups: Sequence[ParamGroup] = ()) -> None:
        self._groups = list(groups)

    def wait(self) -> None:
        """Until the whole parameters are there, as the module's."""
        for group in self._groups:
            if group.is_whole:
                group.register()
        self._groups = []


class FSDPModule:
    """What :func:`fully_shard` adds to the class of a module."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A module of the original class: containers make others of their own class."""
        return cls.__mro__[2](*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._get_fsdp_state().run(self, super().__call__, args, kwargs)  # type: ignore[misc]

    def _get_fsdp_state(self) -> UnitState:
        unit: UnitState = self.__dict__["_fsdp_unit"]
        return unit

    def _groups(self, recurse: bool = False) -> Iterator[ParamGroup]:
        units = states_of(self) if recurse else [self._get_fsdp_state()]
        for unit in units:
            yield from unit.groups

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("FSDP does not support deepcopy. Please use state dict for serialization.")

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Conversions are of the divided parameters, and divide what they make anew."""
        for group in self._groups():
            group.reshard()
        result = super()._apply(*args, **kwargs)  # type: ignore[misc]
        for unit in states_of(self):
            for group in unit.groups:
                group.adopt([places[0][0]._parameters[places[0][1]] for places in group.places])
        return result

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The divided parameters, also while the whole ones are there."""
        for group in self._groups():
            group.put_back()
        return super().state_dict(*args, **kwargs)  # type: ignore[misc]

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        for group in self._groups():
            group.put_back()
        super()._load_from_state_dict(*args, **kwargs)  # type: ignore[misc]

    def reshard(self) -> None:
        """Free the whole parameters of this module (not of those below)."""
        for group in self._groups():
            group.reshard()

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather the parameters of this module (not of those below), as its parameters until :meth:`reshard` or a
        forward; ``async_op`` returns a handle to wait for, which the next forward does too."""
        groups = list(self._groups())
        for group in groups:
            group.unshard(async_op)
        handle = UnshardHandle(groups)
        if async_op:
            return handle
        handle.wait()
        return None

    def reset_iter_state(self) -> None:
        """Give up an iteration whose forward or backward failed; called on the root."""
        unit = self._get_fsdp_state()
        if unit.iteration is None:
            return
        if not unit.is_root:
            raise RuntimeError("reset_iter_state: expected the root module, got one below it; call it on the outermost")
        unit.iteration.reset()

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Whether the next backward ends an iteration; parameters stay whole where it does not and they are."""
        self._get_fsdp_state().join_model().is_last_backward = is_last_backward

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward reduces gradients; those that it does not are added to the next that it does."""
        for group in self._groups(recurse):
            group.syncs = group.layout.ranks.all_reduces = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Whether, on a mesh of two dims, gradients are reduced over copies too; parts are added up until they are."""
        for group in self._groups(recurse):
            group.layout.ranks.all_reduces = requires_all_reduce

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether forward frees the whole parameters."""
        if not isinstance(reshard_after_forward, bool):
            raise ValueError(f"reshard_after_forward should be a bool, got {type(reshard_after_forward)}")
        for unit in states_of(self) if recurse else [self._get_fsdp_state()]:
            unit.reshards_after_forward = reshard_after_forward
            for group in unit.groups:
                group.keeps = None

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Whether backward frees the whole parameters."""
        for group in self._groups(recurse):
            group.reshards_after_backward = reshard_after_backward

    def set_modules_to_forward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Modules whose parameters are gathered while this one's forward runs."""
        self._get_fsdp_state().forward_prefetch = _units_of(modules)

    def set_modules_to_backward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Modules whose parameters are gathered while this one's backward runs: by default the next."""
        self._get_fsdp_state().backward_prefetch = _units_of(modules)

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Whether backward gathers the parameters beforehand: not where it needs none, as of an embedding."""
        for group in self._groups():
            group.unshards_in_backward = unshard_in_backward

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Divide the sum of gradients by this instead of the number of ranks."""
        for group in self._groups():
            group.layout.ranks.divide_factor = float(factor)

    def set_reduce_scatter_divide_factor(self, factor: float) -> None:
        """The same by its old name."""
        self.set_gradient_divide_factor(factor)

    def set_reduce_scatter_unused_params(self, reduce_scatter_unused_params: bool, *, recurse: bool = True) -> None:
        """Whether parameters without a gradient are reduced as zeros: ranks may then use different ones."""
        for group in self._groups(recurse):
            group.fills_unused = reduce_scatter_unused_params

    def set_all_reduce_hook(self, hook: Callable[[Tensor], None], *, stream: Any = None) -> None:
        """Call ``hook`` with every reduced part of a gradient."""
        for group in self._groups():
            group.layout.ranks.reduced_hook = hook

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Whether means are made of sums."""
        for group in self._groups():
            ranks = group.layout.ranks
            copies = 1 if ranks.replicate is None else ranks.replicate.size()
            ranks.divide_factor = float(ranks.parts * copies) if enable else None

    def set_post_optim_event(self, event: Any) -> None:
        """No effect: parameters are gathered in the order of calls."""

    def set_allocate_memory_from_process_group_for_comm(self, enable: bool) -> None:
        """No effect: communicators take any memory."""

    def set_reduce_scatter_max_input_buffers(self, max_input_buffers: int, *, recurse: bool = True) -> None:
        """No effect: a gradient is reduced before the next. ``ValueError`` for less than 1."""
        if isinstance(max_input_buffers, bool) or not isinstance(max_input_buffers, int):
            raise TypeError(f"max_input_buffers must be an int, got {type(max_input_buffers).__name__}")
        if max_input_buffers < 1:
            raise ValueError(f"max_input_buffers must be a positive int, got {max_input_buffers}")

    def set_custom_all_gather(self, comm: Any) -> None:
        """Absent: ``NotImplementedError``."""
        raise NotImplementedError(
            "set_custom_all_gather: collectives are the group's; register a communicator with Backend.register_backend"
        )

    set_custom_reduce_scatter = set_symm_mem_for_comm = set_custom_all_gather

    def set_separate_reduce_scatter_group(self, enable: bool = True, *, recurse: bool = True) -> None:
        """No effect: a group runs its collectives in the order of calls."""


def _units_of(modules: Iterable[Any]) -> list[UnitState]:
    listed = list(modules)
    for module in listed:
        if not isinstance(module, FSDPModule):
            raise ValueError(f"FSDP: expected modules under fully_shard, got {type(module).__name__}")
    return [module._get_fsdp_state() for module in listed]


# --- fully_shard ------------------------------------------------------------------------------------------------------


def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Any], Any] | None = None,
    mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),  # noqa: B008
    offload_policy: OffloadPolicy = OffloadPolicy(),  # noqa: B008
    ignored_params: set[Any] | None = None,
    dp_mesh_dims: DataParallelMeshDims | None = None,
) -> Any:
    """Divide a module's parameters over ranks: each keeps a part, and the whole is there while the module computes.

    Parameters become ``DTensor``s, by default divided along dim 0; forward and backward gather them, backward averages
    gradients over ranks and leaves each rank its part, which is all that the optimizer sees. Submodules come first:
    what has been given to ``fully_shard`` before is a unit of its own, gathered by itself.

    Args:
        module: the module, or several that are gathered together; its class becomes a subclass of :class:`FSDPModule`.
        mesh: one dim to divide over (by default all ranks), or two: copies along the first, parts along the second.
        reshard_after_forward: whether forward frees the whole parameters, which backward gathers again: None for the
            outermost alone not to; a number of ranks, a divisor of the mesh's, to keep parts of so many in between.
        shard_placement_fn: of a parameter, returns the placement it is to be divided by (``Shard(dim)``), or None.
        mp_policy, offload_policy: :class:`MixedPrecisionPolicy`, :class:`CPUOffloadPolicy`.
        ignored_params: parameters that stay as they are.
        dp_mesh_dims: which dims of a larger mesh these are.

    Returns the module. Raises ``ValueError`` for a mesh or number of ranks that does not fit, for containers without a
    forward (``ModuleList``, ``ModuleDict``) and for modules that are divided already.

    >>> import tesserack as ts
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> model = fully_shard(ts.nn.Linear(2, 1))
    >>> model(ts.ones(4, 2)).sum().backward()
    >>> model.bias.grad.full_tensor()
    tensor([4.])
    >>> ts.distributed.destroy_process_group()
    """
    modules = list(module) if isinstance(module, (list, tuple)) else [module]
    for each in modules:
        if type(each).forward is Module.forward:
            raise ValueError(f"fully_shard does not support containers that do not implement forward: {each}")
        if isinstance(each, FSDPModule):
            raise ValueError(f"fully_shard: {type(each).__name__} is divided already; call it once for a module")
    mesh = _mesh_for(modules, mesh, dp_mesh_dims)
    places = places_of(modules, lambda each: isinstance(each, FSDPModule), ignored_params=ignored_params or ())
    groups = []
    if places:
        groups = [_group(places, mesh, shard_placement_fn, mp_policy, offload_policy)]
    unit = UnitState(modules, groups)
    unit.param_dtype, unit.output_dtype = mp_policy.param_dtype, mp_policy.output_dtype
    unit.casts_inputs = mp_policy.cast_forward_inputs
    _set_resharding(unit, reshard_after_forward, mesh)
    for each in modules:
        each.__dict__["_fsdp_unit"] = unit
        each.__class__ = _class_for(type(each))
    return module


def _class_for(cls: type) -> type:
    if cls not in _classes:
        _classes[cls] = type(f"FSDP{cls.__name__}", (FSDPModule, cls), {"__module__": cls.__module__})
    return _classes[cls]


def _mesh_for(modules: Sequence[Any], mesh: DeviceMesh | None, dims: DataParallelMeshDims | None) -> DeviceMesh:
    if mesh is None:
        first = next((p for each in modules for p in each.parameters()), None)
        kind = "cpu" if first is None or first.device.type == "meta" else first.device.type
        if not _world.is_initialized():
            _world.init_process_group()
        return init_device_mesh(kind, (_world.get_world_size(),))
    if dims is not None:
        names = (*dims.replicate_names, *dims.shard_names)
        for name in names:
            if name not in (mesh.mesh_dim_names or ()):
                raise ValueError(f"Mesh dim name {name!r} not found in mesh.mesh_dim_names {mesh.mesh_dim_names}")
        if len(dims.shard_names) != 1 or len(dims.replicate_names) > 1:
            raise NotImplementedError(
                f"fully_shard: expected one dim to shard over and at most one to replicate over, got {dims}"
            )
        return mesh[names if len(names) > 1 else names[0]]
    if mesh.ndim not in (1, 2):
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    return mesh


def _group(
    places: dict[Any, list[Place]],
    mesh: DeviceMesh,
    placement_of: Callable[[Any], Any] | None,
    mixed: MixedPrecisionPolicy,
    offload: OffloadPolicy,
) -> ParamGroup:
    shard = mesh.get_group(mesh.ndim - 1)
    ranks = Ranks(shard, mesh.get_group(0) if mesh.ndim == 2 else None)
    wholes, leaves = [], []
    for parameter in places:
        whole, leaf = _divide(parameter, mesh, ranks, placement_of, offload)
        wholes.append(whole)
        leaves.append(leaf)
    device = next(iter(places)).device if mesh.device_type == "meta" else _device(mesh)
    layout = Divided(ranks, wholes, leaves, device)
    layout.param_dtype, layout.reduce_dtype = mixed.param_dtype, mixed.reduce_dtype
    group = ParamGroup(layout, list(places.values()))
    group.put_divided()
    return group


def _device(mesh: DeviceMesh) -> Any:
    return ts.device(mesh.device_type)


def _divide(
    parameter: Any, mesh: DeviceMesh, ranks: Ranks, placement_of: Callable[[Any], Any] | None, offload: OffloadPolicy
) -> tuple[Whole, Any]:
    from tesserack.distributed.tensor import DTensor, Replicate, Shard

    outer = parameter._spec if isinstance(parameter, DTensor) else None
    shape = tuple(parameter.shape)
    placement = (placement_of(parameter) if placement_of is not None else None) or Shard(0)
    dim = placement.dim % max(parameter.ndim, 1)
    if parameter.ndim == 0:
        raise ValueError(
            "fully_shard doesn't support scalar parameters. Change it to a 1D tensor with numel equal to 1."
        )
    data = local_of(parameter).detach()
    whole = Whole(tuple(data.shape), parameter.dtype, parameter.requires_grad, dim, outer)
    if data.device.type != "meta" and data.device.type != mesh.device_type:
        data = data.to(_device(mesh))
    mine = data.split(chunk_sizes(whole.shape[dim], ranks.parts), dim)[ranks.part]
    local = mine.clone(memory_format=ts.contiguous_format)
    if isinstance(offload, CPUOffloadPolicy) and local.device.type != "meta":
        local = local.cpu()
    placements: list[Any] = [Shard(dim)] if mesh.ndim == 1 else [Replicate(), Shard(dim)]
    if outer is not None:
        mesh, placements = _joined(mesh, placements, outer)
    leaf = divided_leaf(local, shape, mesh, placements, parameter.requires_grad)
    for name, value in parameter.__dict__.items():
        if name not in leaf.__dict__:
            setattr(leaf, name, value)
    return whole, leaf


def _joined(mesh: DeviceMesh, placements: list[Any], outer: Any) -> tuple[DeviceMesh, list[Any]]:
    """The mesh of ranks that divide what another mesh has cut before, and how the parameter lies on it.

    ``ValueError`` unless both are parts of one mesh.
    """
    from tesserack.distributed.tensor import Shard
    from tesserack.distributed.tensor.placement_types import _StridedShard

    other = outer.mesh
    names = (*(mesh.mesh_dim_names or ()), *(other.mesh_dim_names or ()))
    if mesh.root != other.root or len(set(names)) != mesh.ndim + other.ndim:
        raise ValueError(
            f"fully_shard: the parameter lies on {other}, expected a part of the mesh that {mesh} is a part of: make "
            'both from one, init_device_mesh(..., mesh_dim_names=("dp", "tp")), as mesh["dp"] and mesh["tp"]'
        )
    last = placements[-1]
    pieces = 1
    for size, placement in zip(other.shape, outer.placements, strict=True):
        if placement.is_partial():
            raise ValueError(f"fully_shard: expected a parameter whose parts are complete, got {outer}")
        if isinstance(placement, Shard) and placement.dim == last.dim:
            pieces *= size
    if pieces > 1:
        placements = [*placements[:-1], _StridedShard(last.dim, split_factor=pieces)]
    return mesh.root[names], [*placements, *outer.placements]


def _set_resharding(unit: UnitState, wanted: bool | int | None, mesh: DeviceMesh) -> None:
    if wanted is None or isinstance(wanted, bool):
        unit.reshards_after_forward = wanted
        return
    size = mesh.size(mesh.ndim - 1)
    if not 1 < wanted < size or size % wanted:
        raise ValueError(
            f"If passing reshard_after_forward as an int, it should be a factor of {size}, not {wanted}, and neither 1 "
            f"nor {size}: those are False and True"
        )
    lists = mesh.mesh.reshape(-1, wanted).tolist()
    mine, _ = _world.new_subgroups_by_enumeration(lists)
    unit.reshards_after_forward = True
    for group in unit.groups:
        group.keeps = Kept(Ranks(mine))


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """Let a method of a module under :func:`fully_shard` do what its forward does: have whole parameters."""
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module)} does not have a method {method_name}")
    original = getattr(module, method_name)

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        return module._get_fsdp_state().run(module, original, args, kwargs)

    setattr(module, method_name, method)


def share_comm_ctx(modules: list[FSDPModule]) -> None:
    """Accepted: there are no streams to share. ``ValueError`` for modules not under :func:`fully_shard`."""
    _units_of(modules)
