"""Collectives as methods of a group, by the names of PyTorch's ``ProcessGroup``: asynchronous, over its own ranks.

Each takes a tensor or a list of one, and returns a :class:`Work`. Roots and reductions are numbers and ``ReduceOp``,
or stand in an options object, as ``rootRank`` and ``reduceOp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from tesserack.distributed import _coalesced as joined
from tesserack.distributed import _collectives as over
from tesserack.distributed import _letters as letters
from tesserack.distributed._group import ProcessGroup
from tesserack.distributed._reduce_op import ReduceOp

__all__ = [
    "AllreduceCoalescedOptions",
    "AllreduceOptions",
    "BarrierOptions",
    "BroadcastOptions",
    "BuiltinCommHookType",
    "GatherOptions",
    "ReduceOptions",
    "ReduceScatterOptions",
    "ScatterOptions",
]


class BuiltinCommHookType(Enum):
    """How ``DistributedDataParallel`` sends gradients: as they are, or in float16."""

    ALLREDUCE = 0
    FP16_COMPRESS = 1


class _Options:
    """How a method of a group does its collective."""

    def __init__(self) -> None:
        self.reduceOp: Any = ReduceOp.SUM
        self.rootRank = self.rootTensor = 0
        self.timeout: Any = None
        self.asyncOp = True


class AllreduceOptions(_Options):
    """Of ``allreduce``: ``reduceOp``."""


class AllreduceCoalescedOptions(AllreduceOptions):
    """Of ``allreduce_coalesced``: ``reduceOp``."""


class BarrierOptions(_Options):
    """Of ``barrier``: ``timeout``."""


class BroadcastOptions(_Options):
    """Of ``broadcast``: ``rootRank``."""


class GatherOptions(_Options):
    """Of ``gather``: ``rootRank``."""


class ReduceOptions(_Options):
    """Of ``reduce``: ``reduceOp`` and ``rootRank``."""


class ReduceScatterOptions(_Options):
    """Of ``reduce_scatter``: ``reduceOp``."""


class ScatterOptions(_Options):
    """Of ``scatter``: ``rootRank``."""


def _one(op: str, given: Any) -> Any:
    """A tensor, or the one in a list."""
    if not isinstance(given, (list, tuple)):
        return given
    if len(given) != 1:
        raise ValueError(f"{op}: expected a tensor, or a list of one, got {len(given)}")
    return given[0]


def _list(op: str, given: Any) -> Any:
    """A list of tensors, or the one in a list of lists."""
    return _one(op, given) if given and isinstance(given[0], (list, tuple)) else given


def _reduction(given: Any) -> Any:
    return given.reduceOp if isinstance(given, _Options) else given


def _root(given: Any, default: int = 0) -> int:
    return given.rootRank if isinstance(given, _Options) else default if given is None else int(given)


class _Calls:
    """The methods, which :class:`ProcessGroup` gets."""

    def allreduce(self, tensors: Any, opts: Any = ReduceOp.SUM, **kwargs: Any) -> Any:
        """:func:`all_reduce`."""
        return over.all_reduce(_one("allreduce", tensors), _reduction(kwargs.get("op", opts)), self, True)

    def allreduce_coalesced(self, tensors: Sequence[Any], opts: Any = ReduceOp.SUM) -> Any:
        """:func:`all_reduce_coalesced`."""
        return joined.all_reduce_coalesced(list(tensors), _reduction(opts), self, True)

    def broadcast(self, tensors: Any, opts: Any = None, *, root: int = 0) -> Any:
        """:func:`broadcast` from a rank of the group."""
        return over.broadcast(_one("broadcast", tensors), None, self, True, _root(opts, root))

    def reduce(self, tensors: Any, opts: Any = None, op: Any = ReduceOp.SUM, *, root: int = 0) -> Any:
        """:func:`reduce` to a rank of the group."""
        kind = opts.reduceOp if isinstance(opts, _Options) else op
        return over.reduce(_one("reduce", tensors), None, kind, self, True, _root(opts, root))

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Any:
        """:func:`all_gather`."""
        return over.all_gather(_list("allgather", output_tensors), _one("allgather", input_tensors), self, True)

    def _allgather_base(self, output: Any, input: Any, opts: Any = None) -> Any:
        return over.all_gather_into_tensor(output, input, self, True)

    def gather(self, output_tensors: Any, input_tensors: Any, opts: Any = None, *, root: int = 0) -> Any:
        """:func:`gather` on a rank of the group."""
        outputs = _list("gather", output_tensors) or None
        return over.gather(_one("gather", input_tensors), outputs, None, self, True, _root(opts, root))

    def scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None, *, root: int = 0) -> Any:
        """:func:`scatter` from a rank of the group."""
        inputs = _list("scatter", input_tensors) or None
        return over.scatter(_one("scatter", output_tensors), inputs, None, self, True, _root(opts, root))

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = ReduceOp.SUM) -> Any:
        """:func:`reduce_scatter`."""
        output, inputs = _one("reduce_scatter", output_tensors), _list("reduce_scatter", input_tensors)
        return over.reduce_scatter(output, inputs, _reduction(opts), self, True)

    def _reduce_scatter_base(self, output: Any, input: Any, opts: Any = ReduceOp.SUM) -> Any:
        return over.reduce_scatter_tensor(output, input, _reduction(opts), self, True)

    def alltoall(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Any:
        """:func:`all_to_all`."""
        return over.all_to_all(output_tensors, input_tensors, self, True)

    def alltoall_base(
        self, output: Any, input: Any, output_split_sizes: Any, input_split_sizes: Any, opts: Any = None
    ) -> Any:
        """:func:`all_to_all_single`."""
        return over.all_to_all_single(output, input, output_split_sizes, input_split_sizes, self, True)

    def barrier(self, opts: Any = None, **kwargs: Any) -> Any:
        """:func:`barrier`."""
        timeout = kwargs.get("timeout", opts.timeout if isinstance(opts, _Options) else None)
        return over.barrier(self, True, timeout=timeout)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """:func:`monitored_barrier`."""
        over.monitored_barrier(self, timeout, wait_all_ranks)

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Any:
        """:func:`isend` to a rank of the group."""
        return letters.isend(_one("send", tensors), None, self, tag, dstRank)

    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> Any:
        """:func:`irecv` from a rank of the group."""
        return letters.irecv(_one("recv", tensors), None, self, tag, srcRank)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """:func:`irecv` from any rank."""
        return letters.irecv(_one("recv", tensors), None, self, tag)


for _name, _method in vars(_Calls).items():
    if callable(_method):
        setattr(ProcessGroup, _name, _method)
