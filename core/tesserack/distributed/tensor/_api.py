"""``DTensor``: a tensor whose parts lie on the ranks of a mesh, used as if it were whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd import Function
from tesserack.distributed.device_mesh import DeviceMesh
from tesserack.distributed.tensor import _comm
from tesserack.distributed.tensor._redistribute import redistribute_local
from tesserack.distributed.tensor._spec import (
    DTensorSpec,
    TensorMeta,
    dense_stride,
    local_shape_and_offset,
    normalized,
)
from tesserack.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = ["DTensor", "answers", "wrapped"]

Placements = Sequence[Placement]
answers: dict[str, Callable[..., Any]] = {}  # what ``_dispatch.py``, which stands on this file, does for the class


class DTensor(Tensor):
    """A tensor whose parts lie on the ranks of a :class:`DeviceMesh`: shape, dtype and operators are the whole's, and
    each rank holds what its placements say. Every rank of the mesh calls the same operators.

    Made by :meth:`from_local`, :func:`distribute_tensor` or factories such as :func:`zeros`; an operator takes DTensors
    of one mesh (numbers, and plain tensors of no dims, count as replicated).

    >>> import tesserack as ts
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> mesh = ts.distributed.init_device_mesh("cpu", (1,))
    >>> x = DTensor.from_local(ts.ones(2, 3), mesh, [Shard(0)])
    >>> (x * 2).sum(0).placements
    (Partial(sum),)
    >>> (x * 2).sum(0).full_tensor()
    tensor([4., 4., 4.])
    >>> ts.distributed.destroy_process_group()
    """

    _local_tensor: Tensor
    _spec: DTensorSpec
    _moved: bool  # a view that had to be brought elsewhere: what is written to it would not reach the original

    @staticmethod
    def __new__(cls, local_tensor: Tensor, spec: DTensorSpec, *, requires_grad: bool = False) -> DTensor:
        made: DTensor = Tensor._make_wrapper_subclass(
            cls,
            spec.shape,
            strides=spec.stride,
            dtype=local_tensor.dtype,
            device=local_tensor.device,
            requires_grad=requires_grad,
        )
        made._local_tensor, made._spec = local_tensor, spec
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return answers["dispatch"](func, args, kwargs or {})

    @classmethod
    def __check_composite__(cls, name: str, tensors: Sequence[Tensor]) -> None:
        answers["check_mixed"](f"aten.{name}", tensors)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return (
            f"DTensor(local_tensor={self._local_tensor}, device_mesh={self._spec.mesh}, placements={self.placements})"
        )

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["_local_tensor"], (self._spec, self.requires_grad)

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], context: Any, outer_size: Any, outer_stride: Any) -> DTensor:
        spec, requires_grad = context
        meta = TensorMeta(tuple(outer_size), tuple(outer_stride), spec.dtype)
        return DTensor(
            inner["_local_tensor"], DTensorSpec(spec.mesh, spec.placements, meta), requires_grad=requires_grad
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        rebuilt, outline = answers["rebuilt"], answers["outline"]
        return rebuilt, (self._local_tensor, *outline(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> DTensor:
        if id(self) not in memo:
            local = self._local_tensor.clone()
            copied = DTensor(local, self._spec, requires_grad=self.requires_grad)
            copied.__dict__.update({k: v for k, v in self.__dict__.items() if k not in copied.__dict__})
            memo[id(self)] = copied
        return memo[id(self)]  # type: ignore[no-any-return]

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
        *,
        run_check: bool = False,
        shape: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        grad_placements: Placements | None = None,
    ) -> DTensor:
        """This rank's tensor as its part of a whole, whose shape follows from every rank holding as much, or is given
        with ``shape`` and ``stride`` (as uneven parts need). ``run_check`` brings the first rank's values to ranks that
        are to hold the same. The gradient arrives placed as the tensor is, or as ``grad_placements`` says; where that
        would be Partial, it is Replicate.
        """
        mesh = _mesh(device_mesh)
        if isinstance(local_tensor, DTensor):
            raise RuntimeError(
                f"DTensor.from_local: expected a plain tensor as local_tensor, got a DTensor with spec "
                f"{local_tensor._spec}; try redistribute"
            )
        if (shape is None) != (stride is None):
            raise RuntimeError(
                f"Found shape:{shape}, stride:{stride}. Please pass both shape and stride at the same time."
            )
        placed = normalized("DTensor.from_local", mesh, placements, local_tensor.ndim)
        wanted = (
            None
            if grad_placements is None
            else normalized("DTensor.from_local", mesh, grad_placements, local_tensor.ndim)
        )
        if shape is None or stride is None:
            meta = _whole(local_tensor, mesh, placed)
        else:
            meta = TensorMeta(tuple(shape), tuple(stride), local_tensor.dtype)
        spec = DTensorSpec(mesh, placed, meta)
        _check_part(local_tensor, spec)
        made: DTensor = _FromLocal.apply(local_tensor, spec, run_check, wanted)
        return made

    def to_local(self, *, grad_placements: Placements | None = None) -> Tensor:
        """This rank's part. Its gradient is taken as this rank's part of one that is placed as this tensor is, or as
        ``grad_placements`` says."""
        if not ts.is_grad_enabled() or not self.requires_grad:
            return self._local_tensor
        wanted = (
            None
            if grad_placements is None
            else normalized("DTensor.to_local", self._spec.mesh, grad_placements, self.ndim)
        )
        local: Tensor = _ToLocal.apply(self, wanted)
        return local

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
        *,
        async_op: bool = False,
        forward_dtype: Any = None,
        backward_dtype: Any = None,
    ) -> DTensor:
        """The same tensor placed otherwise, by the collectives that it takes; the gradient goes the way back.

        ``forward_dtype`` and ``backward_dtype`` are what is communicated, and results keep the tensor's dtype.
        """
        mesh = device_mesh or self._spec.mesh
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        if mesh != self._spec.mesh:
            raise NotImplementedError("Cross device mesh comm not supported yet!")
        placed = normalized("DTensor.redistribute", mesh, placements, self.ndim)
        for mine, wanted in zip(self.placements, placed, strict=True):
            if isinstance(wanted, Partial) and mine != wanted:
                raise RuntimeError(
                    f"Can not redistribute from {mine} to {wanted}, redistributing to Partial is for internal use only!"
                )
        made: DTensor = _Redistribute.apply(self, placed, forward_dtype, backward_dtype)
        return made

    def full_tensor(self, *, grad_placements: Placements | None = None) -> Tensor:
        """The whole tensor, on every rank."""
        replicated = self.redistribute(placements=[Replicate()] * self._spec.mesh.ndim)
        return replicated.to_local(grad_placements=grad_placements)

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self._spec.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """How the tensor lies along each dim of the mesh."""
        return self._spec.placements

    def tolist(self) -> Any:
        """The whole tensor's elements."""
        return self.full_tensor().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """The whole tensor as an array."""
        return self.full_tensor().numpy(force=force)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.full_tensor().__array__(dtype, copy)

    def __create_chunk_list__(self) -> list[Any]:
        """Where this rank's part lies in the whole, for checkpoints."""
        sizes, offsets = local_shape_and_offset(self.shape, self._spec.mesh, self.placements)
        return [(offsets, sizes)]


def _mesh(given: DeviceMesh | None) -> DeviceMesh:
    if given is not None:
        return given
    from tesserack.distributed.device_mesh import current_mesh

    return current_mesh()


def _whole(local: Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> TensorMeta:
    """The outline of the whole, if every rank holds as much as this one."""
    shape, stride = list(local.shape), list(local.stride())
    for mesh_dim, placement in enumerate(placements):
        if not isinstance(placement, Shard):
            continue
        ranks, width = mesh.size(mesh_dim), stride[placement.dim]
        shape[placement.dim] *= ranks
        for d in range(len(stride)):
            if d != placement.dim and stride[d] >= width and stride[d] > 1:
                stride[d] *= ranks
    return TensorMeta(tuple(shape), tuple(stride), local.dtype)


def _check_part(local: Tensor, spec: DTensorSpec) -> None:
    expected = spec.local_shape()
    if spec.mesh.get_coordinate() is not None and tuple(local.shape) != expected:
        raise RuntimeError(
            f"DTensor.from_local: expected a part of shape {expected} of the whole's {tuple(spec.shape)} on rank "
            f"{spec.mesh.get_rank()}, placed {spec.placements}, got {tuple(local.shape)}"
        )


def wrapped(local: Tensor, spec: DTensorSpec, requires_grad: bool = False) -> DTensor:
    """A DTensor over this memory."""
    return DTensor(local, spec, requires_grad=requires_grad)


def _of_gradient(placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
    """As a gradient arrives of what is so placed: every rank's part of a sum has the sum's."""
    return tuple(Replicate() if p.is_partial() else p for p in placements)


class _FromLocal(Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, spec: DTensorSpec, run_check: bool, wanted: Any) -> DTensor:
        ctx.placements = _of_gradient(spec.placements) if wanted is None else wanted
        if spec.mesh.get_coordinate() is None:
            return wrapped(local.new_empty((0,)), spec, local.requires_grad)
        if run_check:
            for mesh_dim, placement in enumerate(spec.placements):
                if placement.is_replicate() and spec.mesh.size(mesh_dim) > 1:
                    local = _comm.broadcast(
                        local.clone(memory_format=ts.contiguous_format), spec.mesh.get_group(mesh_dim)
                    )
        return wrapped(local.detach(), spec, local.requires_grad)

    @staticmethod
    def backward(ctx: Any, grad: DTensor) -> Any:
        if grad.placements != ctx.placements:
            grad = _Redistribute.apply(grad, ctx.placements, None, None)
        return grad.to_local(), None, None, None


class _ToLocal(Function):
    @staticmethod
    def forward(ctx: Any, given: DTensor, wanted: Any) -> Tensor:
        ctx.spec = given._spec
        ctx.placements = _of_gradient(given.placements) if wanted is None else wanted
        return given._local_tensor.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        spec = ctx.spec
        meta = TensorMeta(spec.shape, dense_stride(spec.shape), grad.dtype)
        return _FromLocal.apply(grad, DTensorSpec(spec.mesh, ctx.placements, meta), False, None), None


class _Redistribute(Function):
    @staticmethod
    def forward(
        ctx: Any, given: DTensor, placements: tuple[Placement, ...], dtype: Any, backward_dtype: Any
    ) -> DTensor:
        ctx.before, ctx.dtypes = given.placements, (dtype, backward_dtype)
        local = given._local_tensor
        sent = local if dtype is None else local.to(dtype)
        moved = redistribute_local(sent, given._spec, placements).to(local.dtype)
        # A result is a tensor of its own, though nothing had to move.
        return wrapped(moved.detach(), given._spec.placed(placements), given.requires_grad)

    @staticmethod
    def backward(ctx: Any, grad: DTensor) -> Any:
        # What every rank has whole stays so: as one part of a sum it would have to be summed again.
        target = tuple(
            Replicate() if was.is_partial() and not now.is_partial() else was
            for was, now in zip(ctx.before, grad.placements, strict=True)
        )
        dtype, backward_dtype = ctx.dtypes
        return _Redistribute.apply(grad, target, backward_dtype, dtype), None, None, None
