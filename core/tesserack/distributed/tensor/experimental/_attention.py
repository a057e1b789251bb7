"""Sequences cut over ranks: contexts of attention, and how their parts are dealt out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.overrides import TorchFunctionMode
from tesserack.distributed.device_mesh import DeviceMesh
from tesserack.distributed.tensor import _comm
from tesserack.distributed.tensor.experimental._ring import RING, attention

__all__ = ["context_parallel", "context_parallel_unshard", "set_rotate_method"]


class _Options:
    """How all contexts of this process work."""

    def __init__(self) -> None:
        self.enable_load_balance = True
        self.rotate_method = "allgather"


_cp_options = _Options()


def set_rotate_method(rotate_method: str) -> None:
    """How keys and values come to every rank: ``"allgather"``, all at once, or ``"alltoall"``, from neighbour to
    neighbour, so that a rank holds those of two ranks at most."""
    if rotate_method not in ("allgather", "alltoall"):
        raise NotImplementedError(f"Context Parallel does not support using {rotate_method} for kv shards rotation")
    _cp_options.rotate_method = rotate_method


def _pieces(mesh: DeviceMesh, balanced: bool) -> list[list[int]]:
    """The numbers of each rank's pieces of a sequence: balanced, one from the front and one from the back, so that what
    is masked is shared evenly."""
    ranks = mesh.size()
    return [[r, 2 * ranks - 1 - r] if balanced else [r] for r in range(ranks)]


def _rank(mesh: DeviceMesh) -> int:
    if mesh.ndim != 1:
        raise ValueError(f"context_parallel: expected a mesh of one dim, got {mesh}; try mesh['cp']")
    return mesh.get_local_rank()


def _cut(tensor: Tensor, dim: int, mesh: DeviceMesh) -> Tensor:
    pieces = _pieces(mesh, _cp_options.enable_load_balance)
    count = sum(map(len, pieces))
    if tensor.shape[dim] % count:
        raise ValueError(
            f"context_parallel: expected dim {dim} of a buffer to divide by {count} (two pieces for each rank), got "
            f"{tensor.shape[dim]}"
        )
    parts = tensor.chunk(count, dim)
    return ts.cat([parts[k] for k in pieces[_rank(mesh)]], dim)


class _Attention(TorchFunctionMode):
    """Attention over the whole sequence, of which each rank gives its part."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh = mesh

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") != "scaled_dot_product_attention":
            return func(*args, **(kwargs or {}))
        pieces = _pieces(self.mesh, _cp_options.enable_load_balance)
        return attention(self.mesh, pieces, _cp_options.rotate_method == RING, *args, **(kwargs or {}))


@contextlib.contextmanager
def context_parallel(
    mesh: DeviceMesh,
    *,
    buffers: list[Tensor] | None = None,
    buffer_seq_dims: list[int] | None = None,
    no_restore_buffers: set[Tensor] | None = None,
) -> Iterator[None]:
    """Within it every rank of a mesh of one dim works on its part of the sequence: ``buffers`` (inputs, labels, tables
    of positions) are cut in place, each along its dim in ``buffer_seq_dims``, and are whole again afterwards, but for
    ``no_restore_buffers``; ``scaled_dot_product_attention`` is over the whole sequence.

    Each rank's part is a piece from the front and one from the back; :func:`context_parallel_unshard` brings results
    in order. Attention takes no mask but ``is_causal``, and no dropout.

    >>> import tesserack as ts
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> mesh = ts.distributed.init_device_mesh("cpu", (1,))
    >>> x = ts.ones(1, 2, 8, 4)
    >>> with context_parallel(mesh, buffers=[x], buffer_seq_dims=[2]):
    ...     y = ts.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    >>> tuple(y.shape)
    (1, 2, 8, 4)
    >>> ts.distributed.destroy_process_group()
    """
    given, dims, kept = buffers or [], buffer_seq_dims or [], no_restore_buffers or set()
    if len(given) != len(dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    if any(all(b is not k for b in given) for k in kept):
        raise ValueError("`no_restore_buffers` must be a subset of `buffers`.")
    with ts.no_grad():
        before = [None if any(b is k for k in kept) else b.clone() for b in given]
        for buffer, dim in zip(given, dims, strict=True):
            _become(buffer, _cut(buffer, dim, mesh))
    try:
        with _Attention(mesh):
            yield
    finally:
        with ts.no_grad():
            for buffer, whole in zip(given, before, strict=True):
                if whole is not None:
                    _become(buffer, whole)


def _become(buffer: Tensor, values: Tensor) -> None:
    values = values.clone(memory_format=ts.contiguous_format)
    buffer.resize_(values.shape)
    buffer.copy_(values)


def context_parallel_unshard(
    mesh: DeviceMesh, buffers: Sequence[Tensor], seq_dims: Sequence[int], load_balancer: Any = None
) -> list[Tensor]:
    """Whole sequences, in order, of what each rank has computed on its part."""
    if load_balancer is not None:
        raise NotImplementedError("context_parallel_unshard: load balancers other than the default are not supported")
    order = [k for mine in _pieces(mesh, _cp_options.enable_load_balance) for k in mine]
    found = []
    with ts.no_grad():
        for buffer, dim in zip(buffers, seq_dims, strict=True):
            at = dim % buffer.ndim
            ranks = mesh.size()
            whole = buffer.detach()
            if ranks > 1:
                whole = _comm.all_gather(whole, at, [buffer.shape[at]] * ranks, mesh.get_group())
            parts = whole.chunk(len(order), at)
            found.append(ts.cat([parts[order.index(k)] for k in range(len(order))], at))
    return found
