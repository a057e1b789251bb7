"""The safetensors format: headers, checked before anything is believed, and tensors read or mapped from files."""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.serialization._files import Sink, read_exactly, read_into

__all__ = [
    "MAX_HEADER",
    "Entry",
    "ObjectsRefusedError",
    "SerializationError",
    "blaming",
    "has_code",
    "map_file",
    "parse_json",
    "read_header",
    "read_tensor",
    "write_tensors",
]

_MAX_NDIM = 64
MAX_HEADER = 100_000_000  # the limit of the safetensors library
_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
# Of floats of 8 bits the code follows from the name; the first ones were named without the ending.
_EIGHT_BITS = [name for name in (str(t).rpartition(".")[2] for t in _native._dtypes) if name.startswith("float8_")]
_SHORTER = {"float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0"}
_DTYPES |= {_SHORTER.get(name, f"F8_{name.removeprefix('float8_').upper()}"): name for name in _EIGHT_BITS}
# Of what holds several values in an element, the format counts each.
_DTYPES["F4"] = "float4_e2m1fn_x2"


class SerializationError(RuntimeError):
    """A file that cannot be loaded: truncated, damaged, or of another format."""


class ObjectsRefusedError(SerializationError):
    """A file that holds objects of classes, which are not made."""


@contextlib.contextmanager
def blaming(name: str, what: str) -> Iterator[None]:
    """Any way in which reading wrong data fails becomes one error that names the file."""
    try:
        yield
    except SerializationError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError, OverflowError) as error:
        raise SerializationError(f"load: {name} is damaged: {what} ({type(error).__name__}: {error})") from None


class Entry:
    """One tensor of a file: dtype, shape, and where its bytes lie after the header; checked."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        code, shape, offsets = described["dtype"], described["shape"], described["data_offsets"]
        if code not in _DTYPES:
            raise ValueError(f"dtype {code!r} is not available; expected one of {', '.join(_DTYPES)}")
        self.dtype = getattr(ts, _DTYPES[code])
        if type(shape) is not list or type(offsets) is not list or len(shape) > _MAX_NDIM or len(offsets) != 2:
            raise ValueError(f"bad shape {shape} or offsets {offsets}")
        if any(isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < 2**63 for n in (*shape, *offsets)):
            raise ValueError(f"bad shape {shape} or offsets {offsets}")
        if (values := self.dtype._values) > 1:
            if not shape or shape[-1] % values:
                raise ValueError(f"shape {shape} of {code}: expected a multiple of {values} values in a row")
            shape = [*shape[:-1], shape[-1] // values]
        self.shape: list[int] = shape
        self.begin, self.end = offsets
        needed = math.prod(shape) * self.dtype.itemsize
        if self.end - self.begin != needed:
            raise ValueError(f"shape {shape} of {code} needs {needed} bytes, offsets {offsets} differ")


def read_header(file: BinaryIO, name: str, alone: bool = True) -> tuple[dict[str, Entry], dict[str, str], int, int]:
    """All entries in the order of their bytes, the metadata, and where the bytes begin and end; at the end of the file,
    if they are ``alone`` in it."""
    origin = file.tell()
    size = file.seek(0, os.SEEK_END) - origin
    file.seek(origin)
    head = read_exactly(file, 512)
    length = int.from_bytes(head[:8], "little")
    if size < 8 or length > min(size - 8, MAX_HEADER):
        raise SerializationError(f"load: {name} {looks_like(head, size)}")
    file.seek(origin + 8)
    with blaming(name, "its header cannot be read"):
        header = parse_json(read_exactly(file, length).decode())
        metadata = header.pop("__metadata__", None) or {}
        if any(not isinstance(value, str) for value in metadata.values()):
            raise ValueError("metadata must be strings")
    entries = {}
    for key, described in header.items():
        with blaming(name, f"the entry of tensor {key!r} is wrong"):
            entries[key] = Entry(described)
    ordered = dict(sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)))
    start = origin + 8 + length
    return ordered, metadata, start, start + check_coverage(ordered, size - 8 - length, name, alone)


def check_coverage(entries: Mapping[str, Entry], available: int, name: str, alone: bool) -> int:
    """The tensors must lie end to end and fill the file, so that none reads the bytes of another; returns their end."""
    end = 0
    for key, entry in entries.items():
        if entry.begin != end:
            raise SerializationError(f"load: {name} is damaged: tensor {key!r} begins at {entry.begin}, expected {end}")
        end = entry.end
    if end > available or (alone and end < available):
        state = "truncated" if end > available else "damaged"
        raise SerializationError(
            f"load: {name} is {state}: its header announces {end} bytes of data, it has {available}"
        )
    return end


def map_file(file: BinaryIO) -> mmap.mmap | None:
    """The file as memory that is read when it is touched, and whose changes stay in this process; None if empty."""
    size = os.fstat(file.fileno()).st_size
    return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) if size else None


def read_tensor(file: BinaryIO, name: str, start: int, entry: Entry, mapped: mmap.mmap | None = None) -> Tensor:
    """The tensor, in memory of its own, or in the mapped file where its place there suits its dtype."""
    size = entry.end - entry.begin
    at = start + entry.begin
    if mapped is not None and size and entry.dtype is not ts.bool and at % entry.dtype.itemsize == 0:
        with blaming(name, f"no tensor has the shape {entry.shape}"):
            return ts.frombuffer(mapped, dtype=entry.dtype, count=math.prod(entry.shape), offset=at).view(entry.shape)
    raw = ts.empty((size,), dtype=ts.uint8, device="cpu")
    if size:
        file.seek(at)
        if read_into(file, memoryview(raw)) != size:
            raise SerializationError(f"load: {name} became shorter while it was read")
    if not size:
        with blaming(name, f"no tensor has the shape {entry.shape}"):
            return ts.empty(entry.shape, dtype=entry.dtype, device="cpu")
    if entry.dtype == ts.bool:
        return (raw != 0).reshape(entry.shape)  # other bytes than 0 and 1 have no meaning as bool
    return raw.view(entry.dtype).reshape(entry.shape)


def parse_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise ValueError("a name occurs twice")
        return made

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)


def looks_like(head: bytes, size: int) -> str:
    """What a file that is no safetensors file may be, and what to do about it."""
    if size == 0:
        return "is empty: writing it was interrupted, or there was no room; write or download it again"
    if head.startswith(b"\x80") and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "is a pickle, which is not loaded because pickles can run code; convert it to safetensors"
    if head.startswith(b"\x93NUMPY"):
        return "is a NumPy file; use tesserack.from_numpy(numpy.load(...))"
    if head.startswith(b"\x89HDF"):
        return "is an HDF5 file; convert it to safetensors"
    if head.startswith(b"version https://git-lfs"):
        return "is a pointer of Git LFS to the file, not the file; fetch it by git lfs pull"
    text = head.lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html", b"<?xml")):
        return (
            "is a page of text, such as a server sends in place of a file that is not there or needs a login; "
            "download it again"
        )
    if text.startswith((b"{", b"[")):
        return "is JSON, perhaps a message of a server; download it again"
    if head.startswith(b"\x1f\x8b"):
        return "is compressed by gzip; open it by gzip.open(...)"
    return "is no safetensors file, or it is truncated"


def write_tensors(sink: Sink, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write the header, and the values of each tensor in turn. Those of complex128 and complex32, which the format does
    not have, are written as pairs."""
    names = sorted(tensors, key=lambda name: (-stored_as(tensors[name])[0].itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        dtype, shape = stored_as(tensors[name])
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        if (values := dtype._values) > 1:
            shape = [*shape[:-1], values * shape[-1]] if shape else [values]
        header[name] = {"dtype": _CODES[dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    text += b" " * (-len(text) % 8)
    sink.write(len(text).to_bytes(8, "little") + text)
    for name in names:
        if tensors[name].numel():
            sink.write(memoryview(_values(tensors[name])))


def stored_as(tensor: Tensor) -> tuple[ts.dtype, list[int]]:
    """The dtype and shape of a tensor in the file."""
    pairs = {ts.complex128: ts.float64, ts.complex32: ts.float16}.get(tensor.dtype)
    return (tensor.dtype, list(tensor.shape)) if pairs is None else (pairs, [*tensor.shape, 2])


def _values(tensor: Tensor) -> Tensor:
    """The bytes of the values, one after the other, on the cpu."""
    dense = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return (ts.view_as_real(dense) if dense.dtype is ts.complex32 else dense).reshape(-1).view(ts.uint8)


_CODES = {getattr(ts, name): code for code, name in _DTYPES.items()}


def has_code(dtype: ts.dtype) -> bool:
    """Whether values of a dtype have a place in the format, be it in pairs; others are written as bytes."""
    return dtype in _CODES or dtype.is_complex
