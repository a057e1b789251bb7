"""Several tensors by one call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.distributed import _collectives as over
from tesserack.distributed._group import ProcessGroup
from tesserack.distributed._memory import flat, on_host
from tesserack.distributed._reduce_op import ReduceOp
from tesserack.distributed._work import Work

__all__ = [
    "all_gather_coalesced",
    "all_reduce_coalesced",
    "all_reduce_parts",
    "broadcast_coalesced",
    "may_be_part",
]


def _flattened(tensors: Sequence[Tensor]) -> Tensor:
    return ts.cat([t.detach().reshape(-1) for t in tensors])


def _spread(data: Tensor, tensors: Sequence[Tensor]) -> None:
    for part, tensor in zip(data.split([t.numel() for t in tensors]), tensors, strict=True):
        tensor.detach().copy_(part.view(tensor.shape))


def _of_one_dtype(tensors: Sequence[Tensor], op: Any) -> Sequence[Tensor]:
    """Tensors; complex ones beside real ones as pairs of those, which add up alike."""
    if op not in (ReduceOp.SUM, ReduceOp.AVG) or len({t.is_complex() for t in tensors}) < 2:
        return tensors
    return [ts.view_as_real(t.detach()) if t.is_complex() else t for t in tensors]


class _Spreading(Work):
    """Waits for a collective over joined tensors, then gives them their parts."""

    def __init__(self, inner: Work, data: Tensor, tensors: Sequence[Tensor]) -> None:
        super().__init__(list(tensors))
        self._inner, self._pending = inner, (data, tensors)

    def wait(self, timeout: Any = None) -> bool:
        self._inner.wait(timeout)
        if not self._done.is_set():
            _spread(*self._pending)
            self._run(lambda: None)
        return True

    def is_completed(self) -> bool:
        return self._inner.is_completed()


def all_reduce_coalesced(
    tensors: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """:func:`all_reduce` of tensors of one dtype, by one collective. Sums take complex ones beside their real ones."""
    parts = _of_one_dtype(tensors, op)
    flat("all_reduce_coalesced", parts)
    data = _flattened(parts)
    work = over.all_reduce(data, op, group, async_op)
    if work is not None:
        return _Spreading(work, data, parts)
    _spread(data, parts)
    return None


def may_be_part(tensor: Tensor, like: Tensor) -> bool:
    """Whether a tensor lies in the host's memory as another one does, so that it can be a part of a reduction."""
    return (
        type(tensor) is Tensor
        and tensor.layout is ts.strided
        and tensor.dtype is like.dtype
        and tensor.shape == like.shape
        and tensor.stride() == like.stride()
        and on_host(tensor)
        and tensor.device == like.device
        and not (tensor.is_complex() or tensor.is_neg())
    )


def all_reduce_parts(tensors: Sequence[Tensor], op: Any, made: ProcessGroup, async_op: bool) -> Work | None:
    """:func:`all_reduce` of tensors on the host that fill their memory, as of one that holds them all, where
    the group's engine ``takes_parts``: none is copied."""
    call, code = made.call(), op.op.value
    parts = [tensor.detach() for tensor in tensors]
    shape = f"{str(parts[0].dtype).rpartition('.')[2]}[{sum(part.numel() for part in parts)}]"

    def job() -> None:
        made.engine.all_reduce_parts(parts, code, call)
        for part in parts:
            _native._increment_version(part)

    return made.run("all_reduce", call, job, async_op, list(tensors), parts[0], shape)


def all_gather_coalesced(
    output_tensor_lists: Sequence[Sequence[Tensor]],
    input_tensor_list: Sequence[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """:func:`all_gather` of several tensors: ``output_tensor_lists[rank][k]`` is tensor ``k`` of a rank."""
    flat("all_gather_coalesced", input_tensor_list)
    data = _flattened(input_tensor_list)
    parts = [ts.empty_like(data) for _ in output_tensor_lists]
    over.all_gather(parts, data, group)
    for part, tensors in zip(parts, output_tensor_lists, strict=True):
        _spread(part, tensors)
    if not async_op:
        return None
    done = Work([list(each) for each in output_tensor_lists])
    done._run(lambda: None)
    return done


def broadcast_coalesced(group: Any, tensors: Sequence[Tensor], buffer_size: int, root: int = 0) -> None:
    """Broadcast tensors, joined by dtype and device to at most ``buffer_size`` bytes a call where they are small."""
    kinds: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.dtype, str(tensor.device)), []).append(tensor)
    for alike in kinds.values():
        for batch in batches(alike, buffer_size):
            data = _flattened(batch)
            over.broadcast(data, group=group, group_src=root)
            _spread(data, batch)


def batches(tensors: Sequence[Tensor], most: int) -> Iterator[list[Tensor]]:
    """Runs of tensors of at most ``most`` bytes, one at least."""
    run: list[Tensor] = []
    held = 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if run and held + size > most:
            yield run
            run, held = [], 0
        run.append(tensor)
        held += size
    if run:
        yield run


class _Works:
    """What a block of coalesced calls leaves."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def append(self, work: Work | None) -> None:
        """Another call's."""
        if work is not None:
            self.works.append(work)

    def wait(self) -> None:
        """Until all are done."""
        for work in self.works:
            work.wait()


@contextlib.contextmanager
def coalescing_manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[_Works]:
    """Calls within are given together; here each is given at once."""
    works = _Works()
    yield works
    if not async_ops:
        works.wait()
