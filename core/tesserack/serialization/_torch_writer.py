"""Writes files that ``torch.load(weights_only=True)`` opens: an archive with the structure as a pickle of protocol 2,
and one record per storage.
"""

from __future__ import annotations

import contextlib
import pickle
import struct
import sys
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.pending import bits_of, physical
from tesserack.nn.quantized.tensor import qscheme
from tesserack.serialization._files import Sink
from tesserack.serialization._zip import ArchiveWriter

__all__ = ["LEGACY_MARK", "MAX_DEPTH", "StorageTable", "deep_recursion", "write_archive", "write_records"]

LEGACY_MARK = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."  # of files of torch.save before 1.6
MAX_DEPTH = 1000
_PROTOCOL = 1001

_FOLDER = "archive"
_MAX_LONG = 255  # bytes of an integer, as far as PyTorch reads them
_STORAGES = {
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "uint8": "ByteStorage",
    "int8": "CharStorage",
    "int16": "ShortStorage",
    "int32": "IntStorage",
    "int64": "LongStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}


def write_archive(obj: Any, sink: Sink, legacy: bool = False) -> None:
    """Write what :func:`tesserack.save` takes, and parameters, sets, sizes, dtypes, devices, as ``torch.save`` would:
    an archive, or the ``legacy`` form.

    Tensors that share memory share it again when read. Raises as :func:`tesserack.save` does.
    """
    writer = _Writer(legacy)
    with deep_recursion():
        text = writer.pickle(obj)
    write_records(sink, text, writer.table, legacy)


def write_records(sink: Sink, text: bytes, table: StorageTable, legacy: bool = False) -> None:
    """The structure, as a pickle, and its storages: as an archive, or as a row of pickles with the bytes behind."""
    if legacy:
        _write_row(sink, text, table)
        return
    archive = ArchiveWriter(sink)
    archive.add(f"{_FOLDER}/data.pkl", text)
    archive.add(f"{_FOLDER}/byteorder", b"little")
    for key in range(len(table.storages)):
        archive.add(f"{_FOLDER}/data/{key}", table.content(key))
    archive.add(f"{_FOLDER}/version", b"3\n")
    archive.close()


def _write_row(sink: Sink, text: bytes, table: StorageTable) -> None:
    sizes = {"short": 2, "int": 4, "long": 4}
    system = {"protocol_version": _PROTOCOL, "little_endian": True, "type_sizes": sizes}
    keys = sorted(map(str, range(len(table.storages))))
    sink.write(LEGACY_MARK)
    for part in (pickle.dumps(_PROTOCOL, 2), pickle.dumps(system, 2), text, pickle.dumps(keys, 2)):
        sink.write(part)
    for key in map(int, keys):
        content = table.content(key)
        sink.write(struct.pack("<q", len(content) // table.item_sizes[key]))
        sink.write(content)


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """Room for structures as deep as :data:`MAX_DEPTH` levels, which are written by functions that call themselves."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 6 * MAX_DEPTH + 1000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@dataclass(frozen=True)
class Stored:
    """Where a tensor lies in what is written: the key of its storage, the class of that (none for bytes), the number of
    its elements, the tensor as it lies there, whatever is pending, and whether it sees them as another dtype."""

    key: int
    kind: str | None
    numel: int
    tensor: Tensor
    retyped: bool


class StorageTable:
    """The storages that tensors lie in, each once."""

    def __init__(self) -> None:
        self.storages: list[Tensor] = []  # their bytes, on their devices
        self.item_sizes: list[int] = []  # in bytes, of what the first tensor in each is
        self._kinds: list[str | None] = []
        self._keys: dict[Any, int] = {}
        self._kept: list[Tensor] = []  # so that no address is used twice

    def content(self, key: int) -> memoryview:
        """The bytes of a storage."""
        held = self.storages[key].cpu()
        return memoryview(held) if held.numel() else memoryview(b"")

    def place(self, tensor: Tensor) -> Stored:
        """Where a tensor lies."""
        if tensor.is_meta:
            raise TypeError("save: a meta tensor has no values to write")
        tensor = physical(tensor)
        handle = tensor._storage_ptr() if tensor.numel() else 0
        identity = (str(tensor.device), handle) if handle else object()
        kind = _STORAGES.get(str(tensor.dtype).rpartition(".")[2])
        if identity not in self._keys:
            self._keys[identity] = len(self.storages)
            self._kept.append(tensor)
            count = tensor._storage_nbytes() // tensor.element_size() if handle else 0
            flat = tensor.as_strided((count,), (1,), 0) if handle else ts.empty(0, dtype=tensor.dtype, device="cpu")
            self.storages.append(flat.view(ts.uint8))
            self._kinds.append(kind)
            self.item_sizes.append(tensor.element_size() if kind else 1)
        key = self._keys[identity]
        first, count = self._kinds[key], self.storages[key].numel() // self.item_sizes[key]
        return Stored(key, first, count, tensor, kind is None or kind != first)


class _Writer:
    """Turns an object into pickle operations, and gathers the storages."""

    def __init__(self, legacy: bool) -> None:
        self.table = StorageTable()
        self._legacy = legacy
        self._memo: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no id is used twice
        self._open: set[int] = set()
        self._parts: list[bytes] = []

    def pickle(self, obj: Any) -> bytes:
        """The whole pickle."""
        self._parts = [b"\x80\x02"]
        self._write(obj, ())
        return b"".join([*self._parts, b"."])

    def _op(self, *parts: bytes) -> None:
        self._parts += parts

    def _write(self, value: Any, path: tuple[Any, ...]) -> None:
        if len(path) > MAX_DEPTH:
            raise ValueError(f"save: nested more than {MAX_DEPTH} levels deep")
        if value is None or isinstance(value, (bool, int, float, str)):
            self._plain(value)
        elif id(value) in self._memo:
            self._get(self._memo[id(value)])
        elif isinstance(value, Tensor):
            self._tensor(value)
            self._remember(value)
        elif isinstance(value, (Mapping, list, tuple, set, frozenset)):
            if id(value) in self._open:
                raise ValueError(f"save: the {type(value).__name__}{_at(path)} contains itself")
            self._open.add(id(value))
            self._container(value, path)
            self._open.discard(id(value))
            if value != ():
                self._remember(value)
        else:
            self._other(value, path)

    def _plain(self, value: Any) -> None:
        if value is None:
            self._op(b"N")
        elif isinstance(value, bool):
            self._op(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            self._integer(int(value))
        elif isinstance(value, float):
            self._op(b"G", struct.pack(">d", value))
        else:
            text = str(value).encode("utf-8", "surrogatepass")
            self._op(b"X", struct.pack("<I", len(text)), text)

    def _integer(self, value: int) -> None:
        if -(2**31) <= value < 2**31:
            self._op(b"J", struct.pack("<i", value))
            return
        content = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        if len(content) > _MAX_LONG:
            raise ValueError(f"save: an integer of {value.bit_length()} bits is too large for PyTorch's format")
        self._op(b"\x8a", struct.pack("B", len(content)), content)

    def _global(self, module: str, name: str) -> None:
        self._op(f"c{module}\n{name}\n".encode())

    def _remember(self, value: Any) -> None:
        index = self._memo[id(value)] = len(self._memo)
        self._kept.append(value)
        self._op(b"r", struct.pack("<I", index))

    def _get(self, index: int) -> None:
        self._op(b"j", struct.pack("<I", index))

    # --- containers -----------------------------------------------------------------------------------------------

    def _container(self, value: Any, path: tuple[Any, ...]) -> None:
        if isinstance(value, Mapping):
            self._mapping(value, path)
        elif isinstance(value, ts.Size):
            self._global("torch", "Size")
            self._tuple([tuple(value)], path)
            self._op(b"R")
        elif isinstance(value, tuple):
            self._tuple(value, path)
        elif isinstance(value, list):
            self._list(value, path)
        else:
            self._global("builtins", "frozenset" if isinstance(value, frozenset) else "set")
            self._tuple([list(value)], path)
            self._op(b"R")

    def _list(self, value: list[Any], path: tuple[Any, ...]) -> None:
        self._op(b"](")
        for k, item in enumerate(value):
            self._write(item, (*path, k))
        self._op(b"e")

    def _tuple(self, value: Any, path: tuple[Any, ...]) -> None:
        short = {0: b")", 1: b"\x85", 2: b"\x86", 3: b"\x87"}.get(len(value))
        if short is None:
            self._op(b"(")
        for k, item in enumerate(value):
            self._write(item, (*path, k))
        self._op(short or b"t")

    def _mapping(self, value: Mapping[Any, Any], path: tuple[Any, ...]) -> None:
        ordered = isinstance(value, OrderedDict)
        if isinstance(value, Counter):
            self._global("collections", "Counter")
            self._tuple([dict(value)], path)
            self._op(b"R")
            return
        if ordered:
            self._global("collections", "OrderedDict")
            self._op(b")R")
        else:
            self._op(b"}")
        self._op(b"(")
        for key, item in value.items():
            self._write(key, (*path, key))
            self._write(item, (*path, key))
        self._op(b"u")
        versions = getattr(value, "_metadata", None)
        if ordered and isinstance(versions, Mapping):
            self._write({"_metadata": versions}, (*path, "_metadata"))
            self._op(b"b")

    # --- tensors and the rest ---------------------------------------------------------------------------------------

    def _tensor(self, value: Tensor) -> None:
        if value.is_quantized:
            self._quantized(value)
        elif value.is_nested:
            self._nested(value)
        elif isinstance(value, ts.nn.Parameter):
            self._global("torch._utils", "_rebuild_parameter")
            self._op(b"(")
            self._values(value.detach(), False)
            self._plain(value.requires_grad)
            self._no_hooks()
            self._op(b"tR")
        elif value.layout is not ts.strided:
            self._sparse(value.detach())
        else:
            self._values(value.detach(), value.requires_grad)

    def _nested(self, tensor: Any) -> None:
        from tesserack.nested._saving import jagged_parts, strided_parts

        if tensor.layout is ts.strided:
            self._global("torch._utils", "_rebuild_nested_tensor")
            self._op(b"(")
            for part in strided_parts(tensor):
                self._values(part, part.is_floating_point() and tensor.requires_grad)
            self._op(b"tR")
        else:
            self._global("torch.nested._internal.nested_tensor", "_rebuild_njt")
            self._tuple((jagged_parts(tensor),), ())
            self._op(b"R")

    def _sparse(self, tensor: Tensor) -> None:
        from tesserack.sparse._parts import parts_of

        parts = parts_of(tensor)
        self._global("torch._utils", "_rebuild_sparse_tensor")
        self._global("torch.serialization", "_get_layout")
        self._tuple(("torch." + str(parts.layout).rpartition(".")[2],), ())
        self._op(b"R(")
        for part in (*parts.indices, parts.values):
            self._values(part, False)
        self._container(ts.Size(tensor.shape), ())
        if parts.layout is ts.sparse_coo:
            self._plain(parts.coalesced)
        self._op(b"t\x86R")

    def _values(self, tensor: Tensor, requires_grad: bool) -> None:
        pending = bits_of(tensor)
        stored = self.table.place(tensor)
        tensor, kind = stored.tensor, stored.kind
        self._global("torch._utils", "_rebuild_tensor_v3" if stored.retyped else "_rebuild_tensor_v2")
        self._op(b"(")
        self._place(stored, "torch" if kind else "torch.storage", kind or "UntypedStorage")
        self._plain(requires_grad)
        self._no_hooks()
        if stored.retyped:
            self._global("torch", str(tensor.dtype).rpartition(".")[2])
        if pending:
            self._write(dict.fromkeys(pending.split(","), True), ())
        self._op(b"tR")

    def _quantized(self, value: Any) -> None:
        stored = self.table.place(value.integers())
        if stored.retyped:  # others see that memory as something else
            stored = self.table.place(value.int_repr())
        kind, *numbers = value.saved()
        self._global("torch._utils", "_rebuild_qtensor")
        self._op(b"(")
        self._place(stored, "torch", kind)
        self._tuple(tuple(numbers), ())
        self._plain(False)
        self._no_hooks()
        self._op(b"tR")

    def _place(self, stored: Stored, module: str, kind: str) -> None:
        """The storage, and where in it a tensor lies."""
        self._op(b"(")
        self._plain("storage")
        self._global(module, kind)
        self._plain(str(stored.key))
        self._plain("cpu")
        self._integer(stored.numel)
        self._op(b"NtQ" if self._legacy else b"tQ")
        self._integer(stored.tensor.storage_offset())
        self._tuple(tuple(stored.tensor.shape), ())
        self._tuple(tuple(stored.tensor.stride()), ())

    def _no_hooks(self) -> None:
        self._global("collections", "OrderedDict")
        self._op(b")R")

    def _other(self, value: Any, path: tuple[Any, ...]) -> None:
        if isinstance(value, (bytes, bytearray)):
            self._bytes(value)
        elif isinstance(value, complex):
            self._global("builtins", "complex")
            self._tuple((value.real, value.imag), path)
            self._op(b"R")
        elif isinstance(value, (ts.dtype, qscheme)):
            self._global("torch", str(value).rpartition(".")[2])
        elif isinstance(value, ts.layout):
            self._global("torch.serialization", "_get_layout")
            self._tuple(("torch." + str(value).rpartition(".")[2],), path)
            self._op(b"R")
        elif isinstance(value, ts.device):
            self._global("torch", "device")
            self._tuple((value.type,) if value.index is None else (value.type, value.index), path)
            self._op(b"R")
        elif type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
            self._write(value.item(), path)
        else:
            from tesserack.serialization._packing import hint_for

            raise TypeError(f"save: cannot store {type(value).__name__}{_at(path)}; {hint_for(value)}")

    def _bytes(self, value: bytes | bytearray) -> None:
        if isinstance(value, bytearray):
            self._global("builtins", "bytearray")
        self._global("_codecs", "encode")
        self._tuple((bytes(value).decode("latin-1"), "latin1"), ())
        self._op(b"R")
        if isinstance(value, bytearray):
            self._op(b"\x85R")


def _at(path: tuple[Any, ...]) -> str:
    return " at " + "".join(f"[{key!r}]" for key in path) if path else ""
