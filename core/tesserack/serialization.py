"""``save`` and ``load``: tensors and plain values in safetensors files, without pickle; and files of ``torch.save``.

The tensors lie in the file under dotted names, readable by any safetensors library. The structure around them (dicts,
lists, numbers, strings) is JSON in the file's metadata, under the key ``tesserack``; a file without that key loads as
a dict of its tensors.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import tesserack as ts
from tesserack import Tensor

__all__ = ["SerializationError", "load", "save"]

_VERSION = 1
_LEGACY_MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."  # of files of torch.save before 1.6
_MAX_DEPTH = 200
_MAX_NDIM = 64
_MAX_HEADER = 100_000_000  # the limit of the safetensors library
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

Path = str | os.PathLike[str]


class SerializationError(RuntimeError):
    """A file that cannot be loaded: truncated, damaged, or of another format."""


# --- save ----------------------------------------------------------------------------------------------------------


def save(
    obj: Any,
    f: Path | BinaryIO,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    *,
    format: str = "safetensors",
) -> None:
    """Write a tensor, or dicts, lists and tuples of tensors, numbers, strings, bytes, bools and None.

    ``f`` is a path, which is replaced only once the new file is complete (devices and pipes are written to), or a
    binary file open for writing. Tensors of all dtypes and devices are stored, values only (no gradients). One that
    occurs twice, or under two names in the same memory, is stored once, and is one tensor again after :func:`load`.
    Subclasses of dict, list and tuple come back as these, but for a ``state_dict()``, which keeps its versions.

    ``format="torch"`` writes what ``torch.save`` would, for ``torch.load(weights_only=True)`` to open; tensors that are
    views of one memory stay so. The arguments between, PyTorch's, have no effect.

    Raises ``TypeError`` naming the place of anything else, such as a module (save its ``state_dict()``), and
    ``ValueError`` for a structure that contains itself, or another format.

    >>> import tempfile, tesserack
    >>> path = tempfile.mkdtemp() + "/model.safetensors"
    >>> save({"weight": tesserack.ones(2), "epoch": 3}, path)
    >>> load(path)
    {'weight': tensor([1., 1.]), 'epoch': 3}
    """
    if format not in ("safetensors", "torch"):
        raise ValueError(f"save: expected the format 'safetensors' or 'torch', got {format!r}")
    if format == "torch":
        _save_archive(obj, f)
        return
    from safetensors import TensorSpec, serialize, serialize_file

    packer = _Packer()
    tree = packer.pack(obj, ())
    described = json.dumps({"version": _VERSION, "tree": tree}, separators=(",", ":"))
    # "pt" tells readers of model files that names and layouts are those of PyTorch, which they are.
    metadata = {"format": "pt", "tesserack": described}
    specs = {
        name: TensorSpec(
            dtype=str(tensor.dtype).rpartition(".")[2],
            shape=list(tensor.shape),
            data_ptr=tensor.data_ptr(),
            data_len=tensor.numel() * tensor.element_size(),
        )
        for name, tensor in packer.tensors.items()
    }
    if not isinstance(f, (str, os.PathLike)):
        f.write(serialize(specs, metadata))
    elif _is_special(f):
        with open(f, "wb") as file:
            file.write(serialize(specs, metadata))
    else:
        with _replacing(f) as temporary:
            serialize_file(specs, temporary, metadata)


def _save_archive(obj: Any, f: Path | BinaryIO) -> None:
    from tesserack._torch_writer import write_archive

    if not isinstance(f, (str, os.PathLike)):
        write_archive(obj, f)
    elif _is_special(f):
        with open(f, "wb") as file:
            write_archive(obj, file)
    else:
        with _replacing(f) as temporary, open(temporary, "wb") as file:
            write_archive(obj, file)


def _is_special(path: Path) -> bool:
    """Whether something other than a file or folder is there, such as a device or a pipe."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[str]:
    """A new name beside ``path``, moved over it at the end, or removed if writing fails."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"save: the folder {folder!r} does not exist")
    temporary = os.path.join(folder, f".{os.urandom(8).hex()}.part")
    try:
        yield temporary
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


class _Packer:
    """Turns an object into a JSON tree, and gathers its tensors under names."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[Any, str] = {}
        self._originals: list[Tensor] = []  # kept alive, so that no address is used twice
        self._open: set[int] = set()

    def pack(self, value: Any, path: tuple[Any, ...]) -> Any:
        """The JSON node of ``value``: literals stand for themselves, everything else is a one-entry object."""
        if value is None or isinstance(value, (bool, str)):
            return value if value is None or isinstance(value, bool) else str(value)
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if isinstance(value, complex):
            return {"complex": [repr(value.real), repr(value.imag)]}
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": value.hex()}
        if isinstance(value, (Mapping, list, tuple)):
            return self._container(value, path)
        if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
            return self.pack(value.item(), path)
        raise TypeError(f"save: cannot store {type(value).__name__}{_at(path)}; {hint_for(value)}")

    def _container(self, value: Any, path: tuple[Any, ...]) -> dict[str, list[Any]]:
        if id(value) in self._open:
            raise ValueError(f"save: the {type(value).__name__}{_at(path)} contains itself")
        if len(path) >= _MAX_DEPTH:
            raise ValueError(f"save: nested more than {_MAX_DEPTH} levels deep")
        self._open.add(id(value))
        if isinstance(value, Mapping):
            items = [[self._key(key, path), self.pack(item, (*path, key))] for key, item in value.items()]
            versions = getattr(value, "_metadata", None)
            if isinstance(versions, Mapping):
                node = {"state_dict": [items, self.pack(versions, (*path, "_metadata"))]}
            else:
                node = {"dict": items}
        else:
            kind = "list" if isinstance(value, list) else "tuple"
            node = {kind: [self.pack(item, (*path, i)) for i, item in enumerate(value)]}
        self._open.discard(id(value))
        return node

    def _key(self, key: Any, path: tuple[Any, ...]) -> Any:
        plain = key is None or isinstance(key, (bool, int, float, str))
        if not plain and not (isinstance(key, tuple) and all(isinstance(part, (int, str)) for part in key)):
            raise TypeError(f"save: cannot store a dict key of type {type(key).__name__}{_at(path)}; use str or int")
        return self.pack(key, path)

    def _tensor(self, tensor: Tensor, path: tuple[Any, ...]) -> dict[str, str]:
        identity = _identity(tensor)
        name = self._names.get(identity)
        if name is None:
            name = self._new_name(path)
            self._names[identity] = name
            self._originals.append(tensor)
            self.tensors[name] = _storable(tensor)
        return {_kind(tensor): name}

    def _new_name(self, path: tuple[Any, ...]) -> str:
        wanted = ".".join(map(str, path)).encode("utf-8", "replace").decode() or "tensor"
        name, count = wanted, 1
        while name in self.tensors or name == "__metadata__":
            count += 1
            name = f"{wanted}#{count}"
        return name


def _identity(tensor: Tensor) -> Any:
    """Equal for tensors that show the same elements of the same memory."""
    layout = tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype)
    if tensor.numel() and tensor.device.type == "cpu":
        return tensor.data_ptr(), layout
    handle = tensor._storage_ptr()
    return (str(tensor.device), handle, tensor.storage_offset(), layout) if handle else id(tensor)


def _kind(tensor: Tensor) -> str:
    """complex128 has no place in the safetensors format: such a tensor is stored as pairs of float64."""
    return "pairs" if tensor.dtype is ts.complex128 else "tensor"


def _storable(tensor: Tensor) -> Tensor:
    """The values, contiguous, on the cpu."""
    dense = tensor.detach().cpu().contiguous()
    return ts.view_as_real(dense) if _kind(tensor) == "pairs" else dense


def _at(path: tuple[Any, ...]) -> str:
    return " at " + "".join(f"[{key!r}]" for key in path) if path else ""


def hint_for(value: Any) -> str:
    """What to do about a value that cannot be stored."""
    if hasattr(value, "state_dict"):
        return "save its state_dict()"
    if type(value).__module__ == "numpy":
        return "convert it with tesserack.from_numpy(...)"
    return "expected tensors, dicts, lists, tuples, numbers, strings, bytes or None"


# --- load ----------------------------------------------------------------------------------------------------------


def load(
    f: Path | BinaryIO,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = True,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read what :func:`save` wrote, any safetensors file (as a dict of tensors), or a file of ``torch.save``.

    ``f`` is a path or a binary file that can seek. Tensors come back on the cpu, or on the device ``map_location``,
    or as what the function ``map_location(tensor, location)`` returns; the location is "cpu", or what a file of PyTorch
    says. Nothing in a file is ever executed: of PyTorch's, plain data is read (state dicts, containers, numbers, text),
    no objects of classes. ``map_location`` may also be a dict from locations to devices. The other arguments are
    accepted for programs that pass them, and have no effect.

    The path of an index, ``model.safetensors.index.json``, gives the tensors of all the files that it names.

    Raises ``FileNotFoundError`` for a path that does not exist, and :class:`SerializationError`, a ``RuntimeError``,
    for a file that is damaged or is none of these, with what it looks like and what to do.
    """
    if isinstance(f, (str, os.PathLike)):
        if os.fspath(f).endswith(".index.json"):
            return _load_shards(os.fspath(f), map_location)
        with open(f, "rb") as file:
            return _load(file, os.fspath(f), map_location)
    return _load(f, str(getattr(f, "name", "the file")), map_location)


def _load_shards(index: str, map_location: Any) -> dict[str, Tensor]:
    """The tensors of the files beside an index, which says where each lies."""
    with open(index, "rb") as file, _blaming(index, "it is no index of safetensors files"):
        if os.fstat(file.fileno()).st_size > _MAX_HEADER:
            raise ValueError("it is too large")
        where = _parse_json(file.read().decode())["weight_map"]
        for key, shard in where.items():
            if not isinstance(shard, str) or shard in ("", ".", "..") or os.path.basename(shard) != shard:
                raise ValueError(f"the file of tensor {key!r} lies elsewhere: {shard!r}")
    folder, found = os.path.dirname(index), {}
    for shard in dict.fromkeys(where.values()):
        path = os.path.join(folder, shard)
        with open(path, "rb") as file:
            entries, _, start = _read_header(file, path)
            for key in (key for key, holder in where.items() if holder == shard):
                if key not in entries:
                    raise SerializationError(f"load: {path} has no tensor {key!r}, though {index} says so")
                found[key] = _placer(map_location)(_read_tensor(file, path, start, entries[key]), "cpu")
    return {key: found[key] for key in where}


def _load_torch(file: BinaryIO, name: str, map_location: Any, archive: bool) -> Any:
    from tesserack import _torch_file

    place = _placer(map_location)
    size = _torch_file.rest_of(file)
    try:
        return (_torch_file.read_archive if archive else _torch_file.read_legacy)(file, size, place)
    except _torch_file.PlacingFailed as failed:
        raise failed.args[0] from None
    except _torch_file.PickleRefused as error:
        raise SerializationError(f"load: {name}, a PyTorch file, cannot be read: {error}") from None
    except _torch_file.DAMAGES as error:
        kind = "a zip archive, perhaps a PyTorch file," if archive else "a PyTorch file of the older form,"
        raise SerializationError(f"load: {name}, {kind} is damaged ({type(error).__name__}: {error})") from None


def _load(file: BinaryIO, name: str, map_location: Any) -> Any:
    origin = file.tell()
    head = file.read(16)
    file.seek(origin)
    if head.startswith((b"PK\x03\x04", _LEGACY_MAGIC)):
        return _load_torch(file, name, map_location, head.startswith(b"PK"))
    entries, metadata, start = _read_header(file, name)
    place = _placer(map_location)
    tensors: dict[str, Tensor] = {}

    def tensor(key: str, pairs: bool = False) -> Tensor:
        if key not in tensors:
            read = _read_tensor(file, name, start, entries[key])
            if pairs and (read.dtype is not ts.float64 or read.shape[-1:] != (2,)):
                raise ValueError(f"expected {key!r} to hold pairs of float64")
            tensors[key] = place(ts.view_as_complex(read) if pairs else read, "cpu")
        return tensors[key]

    described = metadata.get("tesserack")
    if described is None:
        return {key: tensor(key) for key in entries}
    with _blaming(name, "its description of the contents is damaged"):
        outer = _parse_json(described)
        version, tree = outer["version"], outer["tree"]
    if version != _VERSION:
        raise SerializationError(f"load: {name} has format version {version!r}, written by a newer Tesserack; upgrade")
    with _blaming(name, "its description of the contents is damaged"):
        return _unpack(tree, tensor)


def _placer(map_location: Any) -> Callable[[Tensor, str], Tensor]:
    if map_location is None:
        return lambda tensor, location: tensor
    if isinstance(map_location, (str, ts.device)):
        return lambda tensor, location: tensor.to(map_location)
    if isinstance(map_location, Mapping):
        return lambda tensor, location: tensor.to(map_location[location]) if location in map_location else tensor
    if callable(map_location):
        return lambda tensor, location: map_location(tensor, location)
    raise TypeError(f"load: expected map_location to be a device, its name, a dict or a function, got {map_location!r}")


@contextlib.contextmanager
def _blaming(name: str, what: str) -> Iterator[None]:
    """Any way in which reading wrong data fails becomes one error that names the file."""
    try:
        yield
    except SerializationError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError, OverflowError) as error:
        raise SerializationError(f"load: {name} is damaged: {what} ({type(error).__name__}: {error})") from None


def _unpack(node: Any, tensor: Callable[..., Tensor]) -> Any:
    if not isinstance(node, dict):
        if isinstance(node, list):
            raise ValueError("unexpected list")
        return node
    ((kind, content),) = node.items()
    if kind == "tensor":
        return tensor(content)
    if kind == "pairs":
        return tensor(content, pairs=True)
    if kind == "dict":
        return {_unpack(key, tensor): _unpack(item, tensor) for key, item in content}
    if kind == "state_dict":
        items, versions = content
        made = OrderedDict((_unpack(key, tensor), _unpack(item, tensor)) for key, item in items)
        made._metadata = _unpack(versions, tensor)  # type: ignore[attr-defined]
        return made
    if kind == "list":
        return [_unpack(item, tensor) for item in content]
    if kind == "tuple":
        return tuple(_unpack(item, tensor) for item in content)
    if kind == "float":
        return float(content)
    if kind == "complex":
        return complex(float(content[0]), float(content[1]))
    if kind == "bytes":
        return bytes.fromhex(content)
    raise ValueError(f"unknown kind {kind!r}")


# --- the file format -----------------------------------------------------------------------------------------------


class _Entry:
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
        self.shape: list[int] = shape
        self.begin, self.end = offsets
        needed = math.prod(shape) * self.dtype.itemsize
        if self.end - self.begin != needed:
            raise ValueError(f"shape {shape} of {code} needs {needed} bytes, offsets {offsets} differ")


def _read_header(file: BinaryIO, name: str) -> tuple[dict[str, _Entry], dict[str, str], int]:
    """All entries in the order of their bytes, the metadata, and where the bytes begin."""
    origin = file.tell()
    size = file.seek(0, os.SEEK_END) - origin
    file.seek(origin)
    head = file.read(8)
    length = int.from_bytes(head, "little")
    if size < 8 or length > min(size - 8, _MAX_HEADER):
        raise SerializationError(f"load: {name} {_looks_like(head, size)}")
    with _blaming(name, "its header cannot be read"):
        header = _parse_json(file.read(length).decode())
        metadata = header.pop("__metadata__", None) or {}
        if any(not isinstance(value, str) for value in metadata.values()):
            raise ValueError("metadata must be strings")
    entries = {}
    for key, described in header.items():
        with _blaming(name, f"the entry of tensor {key!r} is wrong"):
            entries[key] = _Entry(described)
    ordered = dict(sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)))
    _check_coverage(ordered, size - 8 - length, name)
    return ordered, metadata, origin + 8 + length


def _check_coverage(entries: Mapping[str, _Entry], available: int, name: str) -> None:
    """The tensors must lie end to end and fill the file, so that none reads the bytes of another."""
    end = 0
    for key, entry in entries.items():
        if entry.begin != end:
            raise SerializationError(f"load: {name} is damaged: tensor {key!r} begins at {entry.begin}, expected {end}")
        end = entry.end
    if end != available:
        state = "truncated" if end > available else "damaged"
        raise SerializationError(
            f"load: {name} is {state}: its header announces {end} bytes of data, it has {available}"
        )


def _read_tensor(file: BinaryIO, name: str, start: int, entry: _Entry) -> Tensor:
    size = entry.end - entry.begin
    raw = ts.empty((size,), dtype=ts.uint8)
    if size:
        file.seek(start + entry.begin)
        if file.readinto(_writable_bytes(raw)) != size:  # type: ignore[attr-defined]
            raise SerializationError(f"load: {name} became shorter while it was read")
    if not size:
        with _blaming(name, f"no tensor has the shape {entry.shape}"):
            return ts.empty(entry.shape, dtype=entry.dtype)
    if entry.dtype == ts.bool:
        return (raw != 0).reshape(entry.shape)  # other bytes than 0 and 1 have no meaning as bool
    return raw.view(entry.dtype).reshape(entry.shape)


def _writable_bytes(tensor: Tensor) -> memoryview:
    return memoryview(tensor)


def _parse_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise ValueError("a name occurs twice")
        return made

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)


def _looks_like(head: bytes, size: int) -> str:
    """What a file that is no safetensors file may be, and what to do about it."""
    if size == 0:
        return "is empty"
    if head.startswith(b"\x80") and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "is a pickle, which is not loaded because pickles can run code; convert it to safetensors"
    if head.startswith(b"\x93NUMPY"):
        return "is a NumPy file; use tesserack.from_numpy(numpy.load(...))"
    if head.startswith(b"\x89HDF"):
        return "is an HDF5 file; convert it to safetensors"
    return "is no safetensors file, or it is truncated"
