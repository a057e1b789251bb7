"""Tensors through the ordinary ``pickle``: writing is harmless, reading trusts the pickle as any use of it does.

``tesserack.load`` reads no pickles of this kind. With protocol 5 the elements are buffers that a pickler may carry out
of band, without a copy.
"""

from __future__ import annotations

import pickle

from tesserack import _native
from tesserack._native import Tensor
from tesserack._tensor.subclass import has_no_memory

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = [
    "dense_order",
    "dtype_named",
    "name_of",
    "rebuild_generator",
    "rebuild_tensor",
    "rebuild_with_state",
    "reduce_generator",
    "reduce_tensor",
    "set_state",
    "slots_of",
    "state_of",
]


def dense_order(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether elements fill their memory without gaps and overlaps, in any order of the dimensions."""
    expected = 1
    for step, size in sorted((step, size) for step, size in zip(stride, shape, strict=True) if size != 1):
        if step != expected:
            return False
        expected *= size
    return True


def name_of(dtype: _native.dtype) -> str:
    """The name alone: pickle looks for dtypes in every module there is, which takes longer than all the rest."""
    return str(dtype).rpartition(".")[2]


def dtype_named(name: str) -> _native.dtype:
    """The dtype of a name; ``ValueError`` for any other."""
    found = getattr(_native, name, None)
    if not isinstance(found, _native.dtype):
        raise ValueError(f"pickle: expected the name of a dtype, got {name!r}")
    return found


def reduce_tensor(self: Tensor, protocol: int) -> tuple[Any, ...]:
    """``Tensor.__reduce_ex__``: elements, shape, strides unless they leave gaps, dtype, device, requires_grad.

    The gradient and the graph are left out; attributes, and the class, which must be importable, are kept.
    """
    reduced = _reduced(self, protocol)
    if len(reduced) < 3 or type(self).__reduce_ex__ is Tensor.__reduce_ex__:
        return reduced
    # A method that overrides this one extends the function and its arguments, PyTorch's two parts. Others have the
    # state apart, where it may hold the tensor itself.
    return rebuild_with_state, reduced


def rebuild_with_state(rebuild: Any, arguments: tuple[Any, ...], state: Any) -> Tensor:
    """What the pickle of a tensor calls whose class overrides ``__reduce_ex__``."""
    tensor: Tensor = rebuild(*arguments)
    set_state(tensor, state)
    return tensor


def _reduced(self: Tensor, protocol: int) -> tuple[Any, ...]:
    if self.layout is not _native.strided:
        from tesserack.sparse._saving import reduce

        return reduce(self)
    shape = tuple(self.shape)
    if type(self).__torch_dispatch__ is not Tensor.__torch_dispatch__ and has_no_memory(self):
        outline = shape, tuple(self.stride()), self.storage_offset(), name_of(self.dtype), str(self.device)
        return rebuild_wrapper, (type(self), *outline, self.requires_grad), state_of(self)
    from tesserack._tensor.pending import bits_of, physical

    bits = bits_of(self)
    plain = Tensor._make_subclass(Tensor, physical(self.detach()), False)
    if self.is_meta or not self.numel():
        data, stride = None, tuple(self.stride())
    else:
        # Between the first element and the last: fewer than the elements where some are repeated.
        span = 1 + sum((size - 1) * step for size, step in zip(shape, self.stride(), strict=True))
        if span >= self.numel() and not dense_order(shape, self.stride()):
            plain, span = plain.contiguous(), self.numel()
        stride = tuple(plain.stride())
        flat = plain.as_strided((span,), (1,), plain.storage_offset()).cpu().view(_native.uint8)
        view = memoryview(flat)
        data = pickle.PickleBuffer(view) if protocol >= 5 else bytes(view)
    place = shape, stride, str(self.device), self.requires_grad
    arguments: tuple[Any, ...] = (type(self), data, name_of(self.dtype), *place)
    if bits:
        arguments = (*arguments, bits)
    state = state_of(self)
    return (rebuild_tensor, arguments, state) if state else (rebuild_tensor, arguments)


def state_of(tensor: Tensor) -> Any:
    """What a pickle or a copy keeps of an instance besides its elements: attributes, slots, or what its class says."""
    given = getattr(type(tensor), "__getstate__", None)
    if given is not None and given is not getattr(object, "__getstate__", None):
        return tensor.__getstate__()
    slots = slots_of(tensor)
    return (tensor.__dict__, slots) if slots else tensor.__dict__


def slots_of(tensor: Tensor) -> dict[str, Any]:
    """The slots that an instance of a subclass has filled."""
    if type(tensor) is Tensor:
        return {}
    import copyreg

    names = copyreg._slotnames(type(tensor))  # type: ignore[attr-defined]
    return {name: getattr(tensor, name) for name in names if hasattr(tensor, name)}


def set_state(tensor: Tensor, state: Any) -> None:
    """Give an instance what :func:`state_of` told, by ``__setstate__`` where its class has one."""
    if hasattr(type(tensor), "__setstate__"):
        tensor.__setstate__(state)  # type: ignore[attr-defined]
        return
    parts = state if isinstance(state, tuple) else (state,)
    if len(parts) > 2:
        raise RuntimeError(f"pickle: expected attributes, or those and slots, got a state of {len(parts)} parts")
    for part in parts:
        for name, value in (part or {}).items():
            setattr(tensor, name, value)


def rebuild_wrapper(
    cls: type[Tensor],
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
    dtype: str,
    device: str,
    requires_grad: bool,
) -> Tensor:
    """What a pickled tensor without memory calls; its attributes follow."""
    return Tensor._make_wrapper(  # type: ignore[no-any-return]
        cls, shape, stride, offset, dtype_named(dtype), _native.device(device), requires_grad
    )


def rebuild_tensor(
    cls: type[Tensor],
    data: Any,
    dtype: str,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    device: str,
    requires_grad: bool,
    bits: str = "",
) -> Tensor:
    """What a pickled tensor calls: a new tensor, over ``data`` itself where that is writable memory."""
    if data is None:
        import tesserack

        made = tesserack.empty_strided(shape, stride, dtype=dtype_named(dtype), device=device)
    else:
        flat = _native._from_buffer(bytearray(data) if isinstance(data, bytes) else data, dtype_named(dtype), -1, 0)
        made = flat.as_strided(shape, stride).to(device)
    if bits:
        from tesserack._tensor.pending import with_bits

        made = with_bits(made, bits)
    return Tensor._make_subclass(cls, made, requires_grad)


def reduce_generator(self: Any) -> tuple[Any, ...]:
    """``Generator.__reduce__``: its device and position."""
    return rebuild_generator, (str(self.device), *self._position())


def rebuild_generator(device: str, seed: int, offset: int) -> Any:
    """What a pickled generator calls."""
    return _native.Generator(device)._set_position(seed, offset)
