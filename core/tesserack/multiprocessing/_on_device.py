"""Device memory that goes to other processes by name, where a backend shares it; its owner keeps it meanwhile.

Whoever is sent a name gets one end of a pipe with it, and closes that when the memory is used no more.
"""

from __future__ import annotations

import itertools
import os
import select
import threading
import weakref
from multiprocessing import context, reduction
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack._tensor.pending import bits_of, with_bits
from tesserack._tensor.pickling import dtype_named, name_of
from tesserack.multiprocessing._shared import bytes_of

__all__ = ["collect", "reduce"]

_numbers = itertools.count()
_lent: dict[int, tuple[Tensor, int]] = {}  # the memory, and this process' end of the pipe, by number
_owner = os.getpid()
_lock = threading.Lock()  # queues pickle in threads of their own


def collect() -> int:
    """Let go of memory that no other process uses any more; how many of those sent are still in use.

    >>> collect()
    0
    """
    _forget_of_parent()
    poll = select.poll()
    with _lock:
        for _, pipe in _lent.values():
            poll.register(pipe, 0)  # errors alone: nobody has the other end
        over = {pipe for pipe, _ in poll.poll(0)}
        ended = [_lent.pop(number) for number in [number for number, (_, pipe) in _lent.items() if pipe in over]]
        for _, pipe in ended:
            os.close(pipe)
        return len(_lent)


def _forget_of_parent() -> None:
    """What a fork copied is the parent's."""
    global _owner, _lock
    if _owner != os.getpid():
        _owner, _lock = os.getpid(), threading.Lock()  # a thread of the parent may have held that one
        for _, pipe in _lent.values():
            os.close(pipe)
        _lent.clear()


def reduce(tensor: Tensor) -> tuple[Any, ...] | None:
    """For the pickler of :mod:`multiprocessing`: None where the device shares no memory."""
    name = _native._export_memory(tensor)
    if name is None:
        return None
    collect()
    number, nbytes = next(_numbers), tensor._storage_nbytes()
    theirs, ours = os.pipe()
    with _lock:
        _lent[number] = (bytes_of(tensor, nbytes), ours)
    handle = reduction.DupFd(theirs)
    popen = context.get_spawning_popen()
    if popen is None:
        os.close(theirs)  # the handle has a copy
    else:
        weakref.finalize(popen, os.close, theirs)  # the child that is being started gets this very one
    memory = (os.getpid(), number, str(tensor.device), name, nbytes, handle)
    place = (name_of(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())
    arguments = (type(tensor), memory, *place, tensor.requires_grad, bits_of(tensor))
    state = tensor.__dict__
    return (_rebuild, arguments, state) if state else (_rebuild, arguments)


def _memory(owner: int, number: int, device: str, name: bytes, nbytes: int, handle: Any) -> Tensor:
    fd = handle.detach()
    if owner == os.getpid():
        with _lock:
            lent = _lent.get(number)
        if lent is not None:  # back where it came from
            os.close(fd)
            return lent[0]
    memory: Tensor = _native._import_memory(_native._resolve_device(device), name, nbytes, fd)
    return memory


def _rebuild(
    cls: type[Tensor], memory: Any, dtype: str, shape: Any, stride: Any, offset: int, requires_grad: bool, bits: str
) -> Tensor:
    flat, kind = _memory(*memory), dtype_named(dtype)
    flat = flat[: flat.numel() // kind.itemsize * kind.itemsize].view(kind)
    return Tensor._make_subclass(cls, with_bits(flat.as_strided(shape, stride, offset), bits), requires_grad)
