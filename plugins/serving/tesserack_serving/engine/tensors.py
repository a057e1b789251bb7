"""The protocol's bytes as tensors of a device, and back."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor

from tesserack_serving.protocol.datatypes import DTYPES, NAMES
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.messages import TensorData

__all__ = ["dtype_name", "join", "named_outputs", "to_bytes"]


def join(parts: Sequence[TensorData], device: str) -> Any:
    """Tensors one after another along the first axis; the byte strings of a single one as they are."""
    first = parts[0]
    if first.datatype == "BYTES":
        return [value for part in parts for value in part.data]
    shape = [*first.shape]
    if len(parts) > 1:
        shape[0] = sum(part.shape[0] for part in parts)
    data = bytearray().join(part.data for part in parts if isinstance(part.data, bytes))
    dtype = getattr(ts, DTYPES[first.datatype])
    if not data:
        return ts.empty(shape, dtype=dtype, device=device)
    return ts.frombuffer(data, dtype=dtype).reshape(shape).to(device)


def to_bytes(tensor: Tensor) -> bytes:
    """A tensor's elements in order, little-endian."""
    host = tensor.detach().cpu().contiguous()
    return ctypes.string_at(host.data_ptr(), host.numel() * host.element_size()) if host.numel() else b""


def dtype_name(tensor: Tensor) -> str:
    """The dtype's name without ``torch.``."""
    return str(tensor.dtype).rpartition(".")[2]


def named_outputs(found: Any, where: str) -> dict[str, Tensor]:
    """What a model returned, by name: a dict's keys, fields of a named tuple, else ``output0`` and so on."""
    if isinstance(found, Tensor):
        found = {"output0": found}
    elif hasattr(found, "_asdict"):
        found = found._asdict()
    elif isinstance(found, (list, tuple)):
        found = {f"output{place}": value for place, value in enumerate(found)}
    if isinstance(found, dict):
        by_name: dict[str, Tensor] = {str(name): value for name, value in found.items() if value is not None}
        if by_name and all(isinstance(v, Tensor) and dtype_name(v) in NAMES for v in by_name.values()):
            return by_name
    raise ServingError(f"{where}: expected tensors, a tuple or a dict of them, got {type(found).__name__}", 500)
