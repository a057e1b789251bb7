"""How tensors travel between processes: as shared memory, by the pickler of :mod:`multiprocessing`."""

from __future__ import annotations

import os
from multiprocessing import context, reduction
from multiprocessing.reduction import ForkingPickler
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack._tensor.pending import bits_of, with_bits
from tesserack._tensor.pickling import dtype_named, name_of
from tesserack.multiprocessing import _on_device, _shared
from tesserack.storage._untyped import UntypedStorage, storage_of
from tesserack.utils._descriptors import descriptors_for

__all__ = ["install"]


class _Named:
    """A file's name for one receiver: a link of its own, which the receiver takes away."""

    def __init__(self, link: str) -> None:
        self.link = link

    def detach(self) -> int:
        try:
            fd = os.open(self.link, os.O_RDWR | os.O_CLOEXEC)
            os.unlink(self.link)
        except FileNotFoundError:
            raise RuntimeError(
                f"multiprocessing: the shared memory {self.link} is gone, or was received twice"
            ) from None
        return fd


def _handle(segment: _shared.Segment) -> Any:
    if segment.path is None:
        return _descriptor(segment.fd)
    link = _shared.name_in_shared_memory()
    os.link(segment.path, link)
    return _Named(link)


def _descriptor(fd: int) -> Any:
    """What makes a descriptor of another process. A child that is being spawned gets each only once."""
    popen = context.get_spawning_popen()
    if popen is None:
        with descriptors_for("a tensor for another process", _shared.HELD):
            return reduction.DupFd(fd)
    known: dict[int, Any] = popen.__dict__.setdefault("_tesserack_descriptors", {})
    if fd not in known:
        known[fd] = reduction.DupFd(fd)
    return known[fd]


def _reduce(tensor: Tensor) -> tuple[Any, ...]:
    """A tensor whose memory the receiver shares; by value where it has none, or its device shares none."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "multiprocessing: expected a leaf tensor, got the result of recorded operations, whose graph does not "
            "cross processes; use tensor.detach()"
        )
    if not tensor.numel():
        return tensor.__reduce_ex__(4)  # type: ignore[return-value]
    if tensor.device.type != _native._declared_default():
        return _on_device.reduce(tensor) or tensor.__reduce_ex__(4)  # type: ignore[return-value]
    _shared.share(tensor)
    segment = _shared.segment_of(tensor)
    assert segment is not None
    place = name_of(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
    arguments = (type(tensor), _handle(segment), *place, tensor.requires_grad, bits_of(tensor))
    state = tensor.__dict__
    return (_rebuild, arguments, state) if state else (_rebuild, arguments)


def _received(handle: Any) -> _shared.Segment:
    """The memory that another process sends. Want of descriptors, there or here, shows as an answer without one."""
    try:
        with descriptors_for("a tensor from another process", _shared.HELD):
            return _shared.attach(handle.detach())
    except (EOFError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "ancdata" not in str(error):
            raise
        why = f"the process that sent it has ended, or one of the two has too many open files: {_shared.HELD}"
        raise RuntimeError(
            f"multiprocessing: no descriptor came for a tensor ({str(error) or 'EOFError'}); {why}, or raise the limit "
            "(ulimit -n)"
        ) from error


def _rebuild(
    cls: type[Tensor], handle: Any, dtype: str, shape: Any, stride: Any, offset: int, requires_grad: bool, bits: str
) -> Tensor:
    segment = _received(handle)
    flat = _shared.whole(segment, dtype_named(dtype))
    return Tensor._make_subclass(cls, with_bits(flat.as_strided(shape, stride, offset), bits), requires_grad)


def _reduce_storage(storage: UntypedStorage) -> tuple[Any, ...]:
    """A storage whose memory the receiver shares, as its tensors do; of a slice, which bytes."""
    memory = storage._owner
    nbytes = memory._storage_nbytes()
    if storage.device.type != _native._declared_default() or not nbytes:
        return storage.__reduce__()
    part = None if storage._part is None else (storage._part.start, storage._part.stop)
    return _rebuild_storage, (_shared.bytes_of(memory, nbytes), part)


def _rebuild_storage(memory: Tensor, part: tuple[int, int] | None) -> UntypedStorage:
    whole = storage_of(memory)
    return whole if part is None else whole[part[0] : part[1]]


def install() -> None:
    """Teach the pickler of :mod:`multiprocessing` the classes of tensors."""
    from tesserack.nn.parameter import Buffer, Parameter

    for cls in (Tensor, Parameter, Buffer):
        ForkingPickler.register(cls, _reduce)
    ForkingPickler.register(UntypedStorage, _reduce_storage)  # of which the others are made
