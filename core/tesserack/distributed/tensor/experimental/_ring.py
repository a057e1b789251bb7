"""Attention of a part of the queries to all keys, which other ranks have (Liu et al., "Ring Attention", 2023)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.autograd import Function
from tesserack.distributed import _letters
from tesserack.distributed.device_mesh import DeviceMesh
from tesserack.distributed.tensor import _comm

__all__ = ["RING", "attention"]

RING = "alltoall"  # the name by which PyTorch asks for it

_blocks = _native._operator_function("attention_blocks")
_blocks_backward = _native._operator_function("attention_blocks_backward")


def attention(
    mesh: DeviceMesh,
    pieces: Sequence[Sequence[int]],
    ring: bool,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``scaled_dot_product_attention`` where each rank has the ``pieces`` of the sequence under its number.

    Raises ``NotImplementedError`` for a mask other than ``is_causal``, and for dropout.
    """
    if attn_mask is not None or dropout_p:
        raise NotImplementedError(
            f"context_parallel: expected attention without attn_mask and dropout, got "
            f"{'a mask' if attn_mask is not None else f'dropout_p={dropout_p}'}; use is_causal"
        )
    if query.shape[-2] != key.shape[-2]:
        raise RuntimeError(
            f"context_parallel: expected queries and keys of one length, got {query.shape[-2]} and {key.shape[-2]}"
        )
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    out: Tensor = _Ring.apply(query, key, value, mesh, pieces, ring, is_causal, factor)
    return out


class _Travel:
    """Keys and values (and in backward their gradients, which go with them) that come to this rank from each."""

    def __init__(self, mesh: DeviceMesh, ring: bool) -> None:
        self.mesh, self.ring = mesh, ring
        self.ranks, self.me = mesh.size(), mesh.get_local_rank()

    def around(self, key: Tensor, value: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Every rank's, one's own first."""
        if self.ring:
            both = ts.stack([key, value])
            for step in range(self.ranks):
                yield (self.me - step) % self.ranks, both[0], both[1]
                if step < self.ranks - 1:
                    both = self.shift(both)
            return
        keys, values = (self._all(x) for x in (key, value))
        for step in range(self.ranks):
            rank = (self.me - step) % self.ranks
            yield rank, keys[rank], values[rank]

    def _all(self, x: Tensor) -> Sequence[Tensor]:
        if self.ranks == 1:
            return [x]
        sizes = [x.shape[0]] * self.ranks
        return _comm.all_gather(x, 0, sizes, self.mesh.get_group()).split(sizes)

    def shift(self, sent: Tensor) -> Tensor:
        """One's own to the next rank, and that of the rank before."""
        if self.ranks == 1:
            return sent
        group = self.mesh.get_group()
        sent = sent.contiguous()
        taken = ts.empty_like(sent)
        work = _letters.isend(sent, group=group, group_dst=(self.me + 1) % self.ranks)
        _letters.recv(taken, group=group, group_src=(self.me - 1) % self.ranks)
        if work is not None:
            work.wait()
        return taken

    def home(self, grads: list[Tensor]) -> Tensor:
        """The sum over the ranks of what each has for this one, of one for each rank."""
        if self.ranks == 1:
            return grads[0]
        return _comm.reduce_scatter(grads, self.me, "sum", self.mesh.get_group())


def _seen(mine: Sequence[int], theirs: Sequence[int], causal: bool) -> Iterator[tuple[int, list[int], list[int]]]:
    """For each of one's own pieces, which of another rank's it sees wholly, and which up to the diagonal."""
    for a, piece in enumerate(mine):
        if not causal:
            yield a, list(range(len(theirs))), []
        else:
            yield (
                a,
                [b for b, other in enumerate(theirs) if other < piece],
                [b for b, o in enumerate(theirs) if o == piece],
            )


class _Ring(Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mesh: DeviceMesh,
        pieces: Sequence[Sequence[int]],
        ring: bool,
        causal: bool,
        scale: float,
    ) -> Tensor:
        travel, mine = _Travel(mesh, ring), pieces[mesh.get_local_rank()]
        queries = [q.contiguous() for q in query.chunk(len(mine), -2)]
        # In float32 at least, as what is summed over the ranks.
        outs: list[Any] = [None] * len(mine)
        sums: list[Any] = [None] * len(mine)
        for rank, k, v in travel.around(key, value):
            for a, ks, vs, diagonal in _pairs(mine, pieces[rank], k, v, causal):
                out, lse = _blocks(queries[a], ks, vs, None, diagonal, scale)
                outs[a], sums[a] = _merged(outs[a], sums[a], out, lse)
        result = ts.cat([o.to(query.dtype) for o in outs], -2)
        ctx.save_for_backward(query, key, value, result, ts.cat(sums, -1))
        ctx.travel, ctx.pieces, ctx.causal, ctx.scale = travel, pieces, causal, scale
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, result, sums = ctx.saved_tensors
        travel, pieces, n = ctx.travel, ctx.pieces, ctx.travel.ranks
        mine = pieces[travel.me]
        cut = [[x.contiguous() for x in t.chunk(len(mine), -2)] for t in (grad, query, result)]
        lse = [x.contiguous() for x in sums.chunk(len(mine), -1)]
        of_query = [ts.zeros_like(q) for q in cut[1]]
        of_others: list[Any] = [None] * n
        carried: Any = None
        for rank, k, v in travel.around(key, value):
            both = ts.stack([ts.zeros_like(k), ts.zeros_like(v)])
            for a, ks, vs, diagonal, where in _pairs(mine, pieces[rank], k, v, ctx.causal, places=True):
                found = _blocks_backward(cut[0][a], cut[1][a], ks, vs, None, cut[2][a], lse[a], diagonal, ctx.scale)
                of_query[a] = of_query[a] + found[0]
                _add(both, where, found[1:], len(pieces[rank]))
            if travel.ring:
                # Gradients go on with the keys and values that they are of, and arrive where those came from.
                carried = both if carried is None else travel.shift(carried) + both
            else:
                of_others[rank] = both
        of_both = travel.shift(carried) if travel.ring else travel.home(of_others)
        return ts.cat(of_query, -2), of_both[0], of_both[1], None, None, None, None, None


def _pairs(
    mine: Sequence[int], theirs: Sequence[int], key: Tensor, value: Tensor, causal: bool, places: bool = False
) -> Iterator[Any]:
    """What of another rank's keys and values each piece of queries is to see: in one go what it sees wholly."""
    ks, vs = key.chunk(len(theirs), -2), value.chunk(len(theirs), -2)
    for a, whole, diagonal in _seen(mine, theirs, causal):
        for which, is_diagonal in ((whole, False), (diagonal, True)):
            if which:
                found = ts.cat([ks[b] for b in which], -2), ts.cat([vs[b] for b in which], -2), is_diagonal
                yield (a, *found, which) if places else (a, *found)


def _add(both: Tensor, where: Sequence[int], grads: Sequence[Tensor], count: int) -> None:
    """Gradients of some pieces of keys and values to where they lie in all of them."""
    for target, grad in zip(both, grads, strict=True):
        parts = target.chunk(count, -2)
        for b, part in zip(where, grad.chunk(len(where), -2), strict=True):
            parts[b].add_(part)


def _merged(out: Any, lse: Any, more: Tensor, more_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Attention to two sets of keys, of that to each and its logarithms of sums."""
    wide = more if more.dtype in (ts.float32, ts.float64) else more.float()
    if out is None:
        return wide, more_lse
    total = ts.logaddexp(lse, more_lse)
    kept, added = ((x - total).exp().unsqueeze(-1).to(wide.dtype) for x in (lse, more_lse))
    return out * kept + wide * added, total
