"""Tensors as a communicator of the host takes them: dense, and in the host's memory."""

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


def given(op: str, tensor: Tensor) -> Tensor:
    """A tensor to be read: itself where it may be, else a copy, which of another device is told of as a fallback."""
    check(op, tensor)
    plain = tensor.detach()
    if plain.is_complex():
        plain = plain.resolve_conj()
    if not on_host(plain):
        _native._note_fallback(op, plain)
        plain = plain.cpu()
    return plain.contiguous()


def taken(op: str, tensor: Tensor, *, read: bool = False) -> tuple[Tensor, Callable[[], None]]:
    """Memory to be filled (that already holds the tensor's elements if they are ``read``), and what brings it to the
    tensor afterwards."""
    check(op, tensor)
    plain = tensor.detach()
    if on_host(plain) and plain.is_contiguous() and not (plain.is_complex() and plain.is_conj()):

        def written() -> None:
            _native._increment_version(tensor)

        return plain, written
    host = given(op, tensor) if read else plain.new_empty(plain.shape, device="cpu")
    if host.data_ptr() == plain.data_ptr() and host.numel():
        host = host.clone()

    def bring() -> None:
        plain.copy_(host)

    return host, bring


def shape_text(tensor: Tensor) -> str:
    """``float32[2, 3]``."""
    return f"{str(tensor.dtype).rpartition('.')[2]}{list(tensor.shape)}"


def flat(op: str, tensors: Sequence[Tensor]) -> None:
    """``ValueError`` unless all are of one dtype."""
    dtypes = {t.dtype for t in tensors}
    if len(dtypes) > 1:
        raise ValueError(f"{op}: expected tensors of one dtype, got {', '.join(sorted(map(str, dtypes)))}")
