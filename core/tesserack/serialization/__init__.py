"""``save`` and ``load``: tensors and plain values in safetensors files, without pickle; and files of ``torch.save``.

The tensors lie in the file under dotted names, readable by any safetensors library. The structure around them (dicts,
lists, numbers, strings) is JSON in the file's metadata, under the key ``tesserack``; a file without that key loads as
a dict of its tensors.
"""

from __future__ import annotations

import json
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import tesserack as ts
from tesserack import Tensor
from tesserack.serialization._files import Path, hint_for, is_special, kind_of, replacing, storable
from tesserack.serialization._safetensors import (
    SerializationError,
    blaming,
    map_file,
    parse_json,
    read_header,
    read_tensor,
    tensor_specs,
)
from tesserack.serialization._shards import load_shards, save_shards

__all__ = ["SerializationError", "load", "save"]

_VERSION = 1
LEGACY_MARK = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."  # of files of torch.save before 1.6
_MAX_DEPTH = 200


# --- save ----------------------------------------------------------------------------------------------------------


def save(
    obj: Any,
    f: Path | BinaryIO,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    *,
    format: str = "safetensors",
    max_shard_size: int | str = "5GB",
) -> None:
    """Write a tensor, or dicts, lists and tuples of tensors, numbers, strings, bytes, bools and None.

    ``f`` is a path, which is replaced only once the new file is complete (devices and pipes are written to), or a
    binary file open for writing. Tensors of all dtypes and devices are stored, values only (no gradients). One that
    occurs twice, or under two names in the same memory, is stored once, and is one tensor again after :func:`load`.
    Subclasses of dict, list and tuple come back as these, but for a ``state_dict()``, which keeps its versions.

    ``format="torch"`` writes what ``torch.save`` would, for ``torch.load(weights_only=True)`` to open; tensors that are
    views of one memory stay so. The arguments between, PyTorch's, have no effect.

    A path that ends in ``.index.json`` is written as an index of several safetensors files beside it, each of at most
    ``max_shard_size`` bytes (or ``"500MB"``, ``"2GB"``) or one tensor: of a dict from names to tensors alone.

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
    if isinstance(f, (str, os.PathLike)) and os.fspath(f).endswith(".index.json"):
        save_shards(obj, os.fspath(f), max_shard_size)
        return
    from safetensors import serialize, serialize_file

    packer = _Packer()
    tree = packer.pack(obj, ())
    described = json.dumps({"version": _VERSION, "tree": tree}, separators=(",", ":"))
    # "pt" tells readers of model files that names and layouts are those of PyTorch, which they are.
    metadata = {"format": "pt", "tesserack": described}
    specs = tensor_specs(packer.tensors)
    if not isinstance(f, (str, os.PathLike)):
        f.write(serialize(specs, metadata))
    elif is_special(f):
        with open(f, "wb") as file:
            file.write(serialize(specs, metadata))
    else:
        with replacing(f) as temporary:
            serialize_file(specs, temporary, metadata)


def _save_archive(obj: Any, f: Path | BinaryIO) -> None:
    from tesserack.serialization._torch_writer import write_archive

    if not isinstance(f, (str, os.PathLike)):
        write_archive(obj, f)
    elif is_special(f):
        with open(f, "wb") as file:
            write_archive(obj, file)
    else:
        with replacing(f) as temporary, open(temporary, "wb") as file:
            write_archive(obj, file)


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

    def _sparse(self, tensor: Tensor, path: tuple[Any, ...]) -> dict[str, list[Any]]:
        from tesserack.sparse._parts import parts_of

        parts = parts_of(tensor.detach())
        held = [self._tensor(part, (*path, k)) for k, part in enumerate((*parts.indices, parts.values))]
        return {"sparse": [str(parts.layout).rpartition(".")[2], held, list(tensor.shape), parts.coalesced]}

    def _nested(self, tensor: Any, path: tuple[Any, ...]) -> dict[str, list[Any]]:
        from tesserack.nested._saving import strided_parts

        if tensor.layout is ts.strided:
            parts: Any = strided_parts(tensor)
        else:
            parts = (tensor._plain(), tensor._offsets, tensor._lengths)
        held = [None if part is None else self._tensor(part, (*path, k)) for k, part in enumerate(parts)]
        return {"nested": ["strided", held] if tensor.layout is ts.strided else ["jagged", held, tensor._ragged_idx]}

    def _tensor(self, tensor: Tensor, path: tuple[Any, ...]) -> dict[str, Any]:
        if tensor.is_nested:
            return self._nested(tensor, path)
        if tensor.layout is not ts.strided:
            return self._sparse(tensor, path)
        identity = _identity(tensor)
        name = self._names.get(identity)
        if name is None:
            name = self._new_name(path)
            self._names[identity] = name
            self._originals.append(tensor)
            self.tensors[name] = storable(tensor)
        return {kind_of(tensor): name}

    def _new_name(self, path: tuple[Any, ...]) -> str:
        wanted = ".".join(map(str, path)).encode("utf-8", "replace").decode() or "tensor"
        name, count = wanted, 1
        while name in self.tensors or name == "__metadata__":
            count += 1
            name = f"{wanted}#{count}"
        return name


def _identity(tensor: Tensor) -> Any:
    """Equal for tensors that show the same elements of the same memory."""
    layout = tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype), tensor.is_conj(), tensor.is_neg()
    if tensor.numel() and tensor.device.type == "cpu":
        return tensor.data_ptr(), layout
    handle = tensor._storage_ptr()
    return (str(tensor.device), handle, tensor.storage_offset(), layout) if handle else id(tensor)


def _at(path: tuple[Any, ...]) -> str:
    return " at " + "".join(f"[{key!r}]" for key in path) if path else ""


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

    ``mmap=True`` maps a safetensors file at a path instead of reading it: a tensor's bytes are read when they are first
    used, processes share them, and what is written to the tensors does not reach the file.

    Raises ``FileNotFoundError`` for a path that does not exist, and :class:`SerializationError`, a ``RuntimeError``,
    for a file that is damaged or is none of these, with what it looks like and what to do.
    """
    if isinstance(f, (str, os.PathLike)):
        if os.fspath(f).endswith(".index.json"):
            return load_shards(os.fspath(f), _placer(map_location), bool(mmap))
        with open(f, "rb") as file:
            return _load(file, os.fspath(f), map_location, bool(mmap))
    return _load(f, str(getattr(f, "name", "the file")), map_location, False)


def _load_torch(file: BinaryIO, name: str, map_location: Any, archive: bool) -> Any:
    from tesserack.serialization import _torch_file

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


def _load(file: BinaryIO, name: str, map_location: Any, mapped: bool) -> Any:
    origin = file.tell()
    head = file.read(16)
    file.seek(origin)
    if head.startswith((b"PK\x03\x04", LEGACY_MARK)):
        return _load_torch(file, name, map_location, head.startswith(b"PK"))
    entries, metadata, start = read_header(file, name)
    place = _placer(map_location)
    memory = map_file(file) if mapped else None
    tensors: dict[str, Tensor] = {}

    def tensor(key: str, pairs: bool = False) -> Tensor:
        if key not in tensors:
            read = read_tensor(file, name, start, entries[key], memory)
            if pairs and (read.dtype not in (ts.float64, ts.float16) or read.shape[-1:] != (2,)):
                raise ValueError(f"expected {key!r} to hold pairs of float64 or float16")
            tensors[key] = place(ts.view_as_complex(read) if pairs else read, "cpu")
        return tensors[key]

    described = metadata.get("tesserack")
    if described is None:
        return {key: tensor(key) for key in entries}
    with blaming(name, "its description of the contents is damaged"):
        outer = parse_json(described)
        version, tree = outer["version"], outer["tree"]
    if version != _VERSION:
        raise SerializationError(f"load: {name} has format version {version!r}, written by a newer Tesserack; upgrade")
    with blaming(name, "its description of the contents is damaged"):
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
    if kind == "sparse":
        from tesserack.sparse._saving import rebuild_checked

        layout, held, size, coalesced = content
        parts = [_unpack(part, tensor) for part in held]
        known = layout in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
        data = (*parts, tuple(size), coalesced) if layout == "sparse_coo" else (*parts, tuple(size))
        return rebuild_checked(getattr(ts, layout) if known else None, data)
    if kind == "nested":
        from tesserack.nested._saving import rebuild_jagged, rebuild_strided

        layout, held, *ragged = content
        parts = [_unpack(part, tensor) for part in held]
        if layout == "strided":
            return rebuild_strided(*parts)
        names = dict(zip(("values", "offsets", "lengths"), parts, strict=True))
        return rebuild_jagged({**names, "_ragged_idx": ragged[0]})
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
