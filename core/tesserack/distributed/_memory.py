"""Tensors as a communicator takes them: dense, and in the memory of the host, or of its card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tesserack import Tensor, _native, backends

__all__ = ["flat", "given", "on_host", "shape_text", "taken"]

_host_memory: dict[str, bool] = {}


def on_host(tensor: Tensor) -> bool:
    """Whether the processor may read a tensor's memory where it is."""
    kind = tensor.device.type
    known = _host_memory.get(kind)
    if known is None:
        # Of a meta tensor there is nothing to bring; who needs data says that it has none.
        known = _host_memory[kind] = tensor.is_meta or bool(backends.properties(tensor.device)["host_memory"])
    return known


def check(op: str, tensor: Any) -> None:
    """``TypeError`` of what is no dense tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{op}: expected a tensor, got {type(tensor).__name__}; object collectives take anything")
    if tensor.layout is not _native.strided:
        raise TypeError(f"{op}: expected a dense tensor, got layout {tensor.layout}; try .to_dense()")


def _card(carrier: Any) -> Any:
    """The device whose memory a communicator reads, None: the host's."""
    return None if carrier is None else carrier.device


def _is_there(tensor: Tensor, card: Any) -> bool:
    """Whether a communicator reads a tensor where it is."""
    return on_host(tensor) if card is None else bool(tensor.device == card)


def given(op: str, tensor: Tensor, carrier: Any = None) -> Tensor:
    """A tensor to be read: itself where it may be, else a copy, which on the way to the host is told of as a
    fallback."""
    check(op, tensor)
    plain, card = tensor.detach(), _card(carrier)
    if plain.is_complex():
        plain = plain.resolve_conj()
    if not _is_there(plain, card):
        if card is None:
            _native._note_fallback(op, plain)
        plain = plain.to(card or "cpu")
    return plain.contiguous()


def taken(op: str, tensor: Tensor, carrier: Any = None, *, read: bool = False) -> tuple[Tensor, Callable[[], None]]:
    """Memory to be filled (that already holds the tensor's elements if they are ``read``), and what brings it to the
    tensor afterwards."""
    check(op, tensor)
    plain, card = tensor.detach(), _card(carrier)
    if _is_there(plain, card) and plain.is_contiguous() and not (plain.is_complex() and plain.is_conj()):

        def written() -> None:
            _native._increment_version(tensor)

        return plain, written
    memory = given(op, tensor, carrier) if read else plain.new_empty(plain.shape, device=card or "cpu")
    if memory.data_ptr() == plain.data_ptr() and memory.numel():
        memory = memory.clone()

    def bring() -> None:
        plain.copy_(memory)

    return memory, bring


def shape_text(tensor: Tensor) -> str:
    """``float32[2, 3]``."""
    return f"{str(tensor.dtype).rpartition('.')[2]}{list(tensor.shape)}"


def flat(op: str, tensors: Sequence[Tensor]) -> None:
    """``ValueError`` unless all are of one dtype."""
    dtypes = {t.dtype for t in tensors}
    if len(dtypes) > 1:
        raise ValueError(f"{op}: expected tensors of one dtype, got {', '.join(sorted(map(str, dtypes)))}")
