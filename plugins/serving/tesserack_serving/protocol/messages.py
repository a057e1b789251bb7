"""What both transports carry: tensors, requests, and what is known of a model."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tesserack_serving.protocol.datatypes import SIZES
from tesserack_serving.protocol.errors import ServingError

__all__ = ["InferRequest", "RequestedOutput", "TensorData", "TensorSpec", "check_input", "pack_bytes", "unpack_bytes"]


@dataclass(frozen=True)
class TensorSpec:
    """An input or output as a model declares it; -1 is a size that varies."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """As metadata has it."""
        return {"name": self.name, "datatype": self.datatype, "shape": [*self.shape]}


@dataclass
class TensorData:
    """A tensor on its way: little-endian bytes, or byte strings where the datatype is BYTES."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes | list[bytes]

    def check_size(self) -> None:
        """``ServingError`` unless there are as many values as the shape says."""
        count = prod(self.shape)
        have = len(self.data) if self.datatype == "BYTES" else len(self.data) / SIZES[self.datatype]
        if have != count:
            raise ServingError(
                f"input {self.name!r}: shape {[*self.shape]} has {count} values, got {have:g} of {self.datatype}"
            )


@dataclass
class RequestedOutput:
    """An output that a client asks for, and whether it wants bytes."""

    name: str
    binary: bool = False


@dataclass
class InferRequest:
    """One inference request, of either transport."""

    model: str
    version: str
    inputs: list[TensorData]
    outputs: list[RequestedOutput] = field(default_factory=list)
    id: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    binary: bool = False  # outputs that nobody asked for by name, as bytes


def check_input(given: Sequence[TensorData], declared: Iterable[TensorSpec]) -> None:
    """``ServingError`` unless inputs are those declared: names, datatypes, shapes."""
    by_name = {tensor.name: tensor for tensor in given}
    if len(by_name) < len(given):
        raise ServingError("an input is given twice")
    specs = {spec.name: spec for spec in declared}
    if specs and by_name.keys() != specs.keys():
        raise ServingError(f"expected inputs {', '.join(specs)}, got {', '.join(by_name) or 'none'}")
    for name, spec in specs.items():
        tensor = by_name[name]
        if tensor.datatype != spec.datatype:
            raise ServingError(f"input {name!r}: expected {spec.datatype}, got {tensor.datatype}")
        fits = len(tensor.shape) == len(spec.shape) and all(
            want in (-1, have) for want, have in zip(spec.shape, tensor.shape, strict=True)
        )
        if not fits:
            raise ServingError(f"input {name!r}: expected shape {[*spec.shape]}, got {[*tensor.shape]}")


def pack_bytes(values: Iterable[bytes]) -> bytes:
    """Byte strings as the binary extension has them, each after its length.

    >>> pack_bytes([b"ab", b""])
    b'\\x02\\x00\\x00\\x00ab\\x00\\x00\\x00\\x00'
    """
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def unpack_bytes(data: bytes, name: str) -> list[bytes]:
    """The byte strings of :func:`pack_bytes`. ``ServingError`` where a length points past the end."""
    values, place = [], 0
    while place < len(data):
        if place + 4 > len(data):
            raise ServingError(f"input {name!r}: a length is cut off")
        (size,) = struct.unpack_from("<I", data, place)
        place += 4
        if place + size > len(data):
            raise ServingError(f"input {name!r}: a value of {size} bytes is cut off")
        values.append(bytes(data[place : place + size]))
        place += size
    return values
