"""Messages between two ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tesserack import Tensor
from tesserack.distributed._group import ProcessGroup
from tesserack.distributed._memory import given, taken
from tesserack.distributed._work import Work
from tesserack.distributed._world import resolve

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]


def _peer(made: ProcessGroup, op: str, rank: int | None, group_rank: int | None) -> int:
    peer = group_rank if group_rank is not None else None if rank is None else made.group_rank(rank, op)
    if peer is None:
        raise ValueError(f"{op}: expected the rank of another process")
    if peer == made.rank():
        raise ValueError(f"Invalid {'destination' if op.endswith('send') else 'source'} rank: {op} with oneself")
    return peer


def _send(tensor: Tensor, dst: Any, group: Any, tag: int, group_dst: Any, async_op: bool) -> Any:
    made = resolve(group)
    if made is None:
        return None
    peer, call, memory = _peer(made, "send", dst, group_dst), made.call(), given("send", tensor)
    return made.post("send", peer, lambda: made.engine.send(memory, peer, tag, call), async_op, [tensor], tensor)


def _receive(tensor: Tensor, src: Any, group: Any, tag: int, group_src: Any, async_op: bool) -> Any:
    made = resolve(group)
    if made is None:
        return None
    anyone = src is None and group_src is None
    peer, call = (-1 if anyone else _peer(made, "recv", src, group_src)), made.call()
    memory, finish = taken("recv", tensor)

    def job() -> int:
        source = made.engine.receive(memory, peer, tag, call)
        finish()
        return made.ranks[source]

    return made.post("receive", peer, job, async_op, [tensor], tensor)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor to a rank; returns when its memory may be used again."""
    _send(tensor, dst, group, tag, group_dst, False)


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive a tensor of the size and dtype of ``tensor`` from a rank, None: from any; returns whose it was."""
    found = _receive(tensor, src, group, tag, group_src, False)
    return -1 if found is None else int(found)


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """As :func:`send`, by itself."""
    work: Work | None = _send(tensor, dst, group, tag, group_dst, True)
    return work


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """As :func:`recv`, by itself."""
    work: Work | None = _receive(tensor, src, group, tag, group_src, True)
    return work


class P2POp:
    """One of a batch: ``op`` is :func:`isend` or :func:`irecv`."""

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError("P2POp: expected op to be tesserack.distributed.isend or irecv, got " + repr(op))
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = (
            op,
            tensor,
            peer,
            group,
            tag,
            group_peer,
        )

    def __repr__(self) -> str:
        made = resolve(self.group)
        here, there = (made.rank(), self.group_peer) if made is not None else (-1, self.group_peer)
        if there is None and made is not None and self.peer is not None:
            there = made.group_rank(self.peer)
        ends = (here, there) if self.op is isend else (there, here)
        return (
            f"P2POp({self.op.__name__}, group_src={ends[0]}, group_dst={ends[1]}, {self.tensor.shape}, "
            f"{self.tensor.dtype})"
        )


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Start all of them; wait for each of what comes back."""
    if not p2p_op_list or not all(isinstance(each, P2POp) for each in p2p_op_list):
        raise ValueError("batch_isend_irecv: expected a list of P2POp")
    works = []
    for each in p2p_op_list:
        if each.op is isend:
            work = isend(each.tensor, each.peer, each.group, each.tag, each.group_peer)
        else:
            work = irecv(each.tensor, each.peer, each.group, each.tag, each.group_peer)
        if work is not None:
            works.append(work)
    return works
