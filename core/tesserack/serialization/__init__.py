"""``save`` and ``load``: tensors and plain values in safetensors files, without pickle; and files of ``torch.save``.

The tensors lie in the file under dotted names, readable by any safetensors library. The structure around them (dicts,
lists, numbers, strings) is JSON in the file's metadata, under the key ``tesserack``; a file without that key loads as
a dict of its tensors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import tesserack as ts
from tesserack import Tensor
from tesserack.serialization._files import destination, read_exactly
from tesserack.serialization._packing import Packer, unpack, view_of
from tesserack.serialization._safetensors import (
    ObjectsRefusedError,
    SerializationError,
    blaming,
    map_file,
    parse_json,
    read_header,
    read_tensor,
    write_tensors,
)

__all__ = ["ObjectsRefusedError", "SerializationError", "load", "save"]

_VERSION = 2  # 1 knew no tensors that share memory
LEGACY_MARK = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."  # of files of torch.save before 1.6
Path = str | os.PathLike[str]


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
    occurs twice, or under two names in the same memory, is stored once, and is one tensor again after :func:`load`;
    tensors that overlap in memory do again, and are found by Tesserack alone under their names.
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
        from tesserack.serialization._torch_writer import write_archive

        with destination(f) as sink:
            write_archive(obj, sink, legacy=not _use_new_zipfile_serialization)
        return
    if isinstance(f, (str, os.PathLike)) and os.fspath(f).endswith(".index.json"):
        from tesserack.serialization._shards import save_shards

        save_shards(obj, os.fspath(f), max_shard_size)
        return
    packer = Packer()
    tree = packer.whole(obj)
    version = _VERSION if packer.shares else _VERSION - 1
    described = json.dumps({"version": version, "tree": tree}, separators=(",", ":"))
    # "pt" tells readers of model files that names and layouts are those of PyTorch, which they are.
    with destination(f) as sink:
        write_tensors(sink, packer.tensors, {"format": "pt", "tesserack": described})


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
    or as what the function ``map_location(tensor, location)`` returns, if anything; the location is "cpu", or what a
    file of PyTorch says. Nothing in a file is ever executed: of PyTorch's, plain data is read (state dicts, containers,
    numbers, text), no objects of classes. ``map_location`` may also be a dict from locations to devices. ``encoding``
    is that of text of Python 2 in a file of PyTorch, or ``"bytes"`` to leave it that. The other arguments are accepted
    for programs that pass them, and have no effect.

    The path of an index, ``model.safetensors.index.json``, gives the tensors of all the files that it names.

    ``mmap=True`` maps a safetensors file at a path instead of reading it: a tensor's bytes are read when they are first
    used, processes share them, and what is written to the tensors does not reach the file.

    Raises ``FileNotFoundError`` for a path that does not exist, ``UnicodeDecodeError`` for text in another encoding
    than the one given, and :class:`SerializationError`, a ``RuntimeError``, for a file that is damaged or is none of
    these, with what it looks like and what to do.
    """
    encoding = pickle_load_args.get("encoding")
    if isinstance(f, (str, os.PathLike)):
        if os.fspath(f).endswith(".index.json"):
            from tesserack.serialization._shards import load_shards

            return load_shards(os.fspath(f), _placer(map_location), bool(mmap))
        with open(f, "rb") as file:
            return _load(file, os.fspath(f), map_location, bool(mmap), alone=True, encoding=encoding)
    name = str(getattr(f, "name", "the file"))
    return _load(f, name, map_location, False, alone=False, encoding=encoding)


def _load_torch(file: BinaryIO, name: str, map_location: Any, archive: bool, encoding: str | None) -> Any:
    from tesserack.serialization import _torch_file

    place = _placer(map_location)
    size = _torch_file.rest_of(file)
    try:
        return (_torch_file.read_archive if archive else _torch_file.read_legacy)(file, size, place, encoding)
    except _torch_file.PlacingFailed as failed:
        raise failed.args[0] from None
    except _torch_file.PickleRefused as error:
        refused = ObjectsRefusedError if isinstance(error, _torch_file.NameRefused) else SerializationError
        raise refused(f"load: {name}, a PyTorch file, cannot be read: {error}") from None
    except _torch_file.DAMAGES as error:
        if isinstance(error, UnicodeDecodeError) and encoding is not None:
            raise
        kind = "a zip archive, perhaps a PyTorch file," if archive else "a PyTorch file of the older form,"
        raise SerializationError(f"load: {name}, {kind} is damaged ({type(error).__name__}: {error})") from None


def _load(file: BinaryIO, name: str, map_location: Any, mapped: bool, alone: bool, encoding: str | None = None) -> Any:
    """``alone`` where nothing may follow in the file."""
    origin = file.tell()
    head = read_exactly(file, 16)
    file.seek(origin)
    if head.startswith((b"PK\x03\x04", LEGACY_MARK)):
        return _load_torch(file, name, map_location, head.startswith(b"PK"), encoding)
    entries, metadata, start, end = read_header(file, name, alone)
    place = _placer(map_location)
    memory = map_file(file) if mapped else None
    tensors: dict[str, Tensor] = {}
    views: dict[str, Tensor] = {}

    def tensor(key: str | None, pairs: bool = False, view: Any = None) -> Tensor:
        if key is None:
            key = json.dumps(view)  # no name of a tensor here, as it is no text
            if key not in views:
                views[key] = view_of(tensor(view[0]), view)
            return views[key]
        if key not in tensors:
            read = read_tensor(file, name, start, entries[key], memory)
            if pairs and (read.dtype not in (ts.float64, ts.float16) or read.shape[-1:] != (2,)):
                raise ValueError(f"expected {key!r} to hold pairs of float64 or float16")
            tensors[key] = place(ts.view_as_complex(read) if pairs else read, "cpu")
        return tensors[key]

    described = metadata.get("tesserack")
    if described is None:
        found = {key: tensor(key) for key in entries}
        file.seek(end)
        return found
    with blaming(name, "its description of the contents is damaged"):
        outer = parse_json(described)
        version, tree = outer["version"], outer["tree"]
    if version not in (1, _VERSION):
        raise SerializationError(f"load: {name} has format version {version!r}, written by a newer Tesserack; upgrade")
    with blaming(name, "its description of the contents is damaged"):
        made = unpack(tree, tensor)
    file.seek(end)  # where something else may follow
    return made


def _placer(map_location: Any) -> Callable[[Tensor, str], Tensor]:
    if map_location is None:
        return lambda tensor, location: tensor
    if isinstance(map_location, (str, ts.device)):
        return lambda tensor, location: tensor.to(map_location)
    if isinstance(map_location, Mapping):
        return lambda tensor, location: tensor.to(map_location[location]) if location in map_location else tensor
    if callable(map_location):
        return lambda tensor, location: tensor if (placed := map_location(tensor, location)) is None else placed
    raise TypeError(f"load: expected map_location to be a device, its name, a dict or a function, got {map_location!r}")
