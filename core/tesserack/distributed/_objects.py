"""Collectives over anything that pickles. What comes was pickled by another rank of the program: as trusted as that."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _collectives as over
from tesserack.distributed._letters import recv, send
from tesserack.distributed._world import get_global_rank, resolve

__all__ = [
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
]


def _packed(value: Any) -> Tensor:
    return ts.frombuffer(bytearray(pickle.dumps(value)), dtype=ts.uint8)


def _unpacked(data: Tensor) -> Any:
    return pickle.load(io.BytesIO(data.numpy().tobytes()))


def _check(op: str, objects: Any, size: int, what: str) -> None:
    if not isinstance(objects, list) or len(objects) != size:
        raise ValueError(f"{op}: expected {what} to be a list of {size}, one a rank, got {objects!r:.60}")


def _gathered(value: Any, group: Any) -> list[Tensor]:
    """Every rank's object as bytes, on every rank."""
    made = resolve(group)
    assert made is not None
    data = _packed(value)
    sizes = [ts.zeros(1, dtype=ts.int64, device="cpu") for _ in range(made.size())]
    over.all_gather(sizes, ts.tensor([data.numel()], device="cpu"), made)
    parts = [ts.empty(int(n.item()), dtype=ts.uint8, device="cpu") for n in sizes]
    over.all_gather(parts, data, made)
    return parts


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Each rank's ``obj``, in ``object_list`` of every rank.

    >>> import tesserack as ts
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> found = [None]
    >>> ts.distributed.all_gather_object(found, {"rank": 0})
    >>> found
    [{'rank': 0}]
    >>> ts.distributed.destroy_process_group()
    """
    made = resolve(group)
    if made is None:
        return
    _check("all_gather_object", object_list, made.size(), "object_list")
    object_list[:] = map(_unpacked, _gathered(obj, made))


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Each rank's ``obj``, in ``object_gather_list`` of rank ``dst``."""
    made = resolve(group)
    if made is None:
        return
    root = over._root(made, "gather_object", dst, group_dst, 0)
    if made.rank() == root:
        _check("gather_object", object_gather_list, made.size(), "object_gather_list")
    parts = _gathered(obj, made)
    if made.rank() == root and object_gather_list is not None:
        object_gather_list[:] = map(_unpacked, parts)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """The objects of rank ``src``, in ``object_list`` of every rank, which is of the same length everywhere."""
    made = resolve(group)
    if made is None:
        return
    root = over._root(made, "broadcast_object_list", src, group_src, 0)
    mine = made.rank() == root
    packed = [_packed(each) for each in object_list] if mine else []
    sizes = ts.tensor([p.numel() for p in packed] if mine else [0] * len(object_list), dtype=ts.int64, device="cpu")
    over.broadcast(sizes, group=made, group_src=root)
    data = ts.cat(packed) if packed else ts.empty(int(sizes.sum().item()), dtype=ts.uint8, device="cpu")
    over.broadcast(data, group=made, group_src=root)
    if not mine:
        object_list[:] = [_unpacked(part) for part in data.split(sizes.tolist())]


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """One of the objects of rank ``src`` for each rank, as the first of ``scatter_object_output_list``."""
    made = resolve(group)
    if made is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError(
            "scatter_object_list: Expected argument scatter_object_output_list to be a list of size at least 1."
        )
    root = over._root(made, "scatter_object_list", src, group_src, 0)
    if made.rank() == root:
        _check("scatter_object_list", scatter_object_input_list, made.size(), "scatter_object_input_list")
    given = [scatter_object_input_list if made.rank() == root else None]
    broadcast_object_list(given, group=made, group_src=root)
    assert given[0] is not None
    scatter_object_output_list[0] = given[0][made.rank()]


def send_object_list(
    object_list: Sequence[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send objects to a rank."""
    packed = [_packed(each) for each in object_list]
    sizes = ts.tensor([p.numel() for p in packed], dtype=ts.int64, device="cpu")
    send(sizes, dst, group, group_dst=group_dst)
    send(ts.cat(packed) if packed else ts.empty(0, dtype=ts.uint8, device="cpu"), dst, group, group_dst=group_dst)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Receive as many objects as ``object_list`` has, from a rank or from any; returns whose they were."""
    sizes = ts.zeros(len(object_list), dtype=ts.int64, device="cpu")
    source = recv(sizes, src, group, group_src=group_src)
    if source < 0 and src is None and group_src is not None:
        source = get_global_rank(group, group_src)
    data = ts.empty(int(sizes.sum().item()), dtype=ts.uint8, device="cpu")
    recv(data, source, group)
    object_list[:] = [_unpacked(part) for part in data.split(sizes.tolist())]
    return source
