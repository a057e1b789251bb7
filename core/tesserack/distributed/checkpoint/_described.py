"""What a checkpoint says of itself, as JSON, and checked when it is read."""

from __future__ import annotations

import json
from typing import Any

import tesserack as ts
from tesserack.distributed.checkpoint._nested import Position
from tesserack.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from tesserack.serialization._safetensors import SerializationError, blaming, parse_json

__all__ = ["METADATA", "described", "undescribed"]

METADATA = ".metadata.json"
_VERSION = 1


def described(metadata: Metadata) -> bytes:
    """The text."""
    entries: dict[str, Any] = {}
    for name, stored in metadata.state_dict_metadata.items():
        entry: dict[str, Any] = {}
        if isinstance(stored, TensorStorageMetadata):
            entry = {"dtype": str(stored.properties.dtype).rpartition(".")[2], "size": list(stored.size)}
        chunks: list[Any] = stored.chunks if isinstance(stored, TensorStorageMetadata) else [None]
        entry["parts"] = [_part(name, chunk, metadata.storage_data) for chunk in chunks]
        if metadata.planner_data is not None:
            entry["path"] = [_step(key) for key in metadata.planner_data[name]]
        entries[name] = entry
    outer = {"format": "tesserack checkpoint", "version": _VERSION, "entries": entries}
    return json.dumps(outer, indent=1).encode()


def _part(name: str, chunk: ChunkStorageMetadata | None, storage: Any) -> dict[str, Any]:
    index = MetadataIndex(name, None if chunk is None else chunk.offsets)
    part = dict(storage[index])
    if chunk is not None:
        part |= {"offsets": list(chunk.offsets), "sizes": list(chunk.sizes)}
    return part


def _step(key: Any) -> Any:
    """A key of a path: text, a number, or a place in a list. ``TypeError`` for others."""
    if isinstance(key, Position):
        return {"position": int(key)}
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        raise TypeError(f"save: expected text and numbers as keys of state dicts, got {key!r}")
    return key


def undescribed(text: bytes, name: str) -> Metadata:
    """The reverse. ``SerializationError`` for what is none, or says what cannot be."""
    with blaming(name, "it is no description of a checkpoint"):
        outer = parse_json(text.decode())
        if outer["format"] != "tesserack checkpoint":
            raise ValueError(f"format {outer['format']!r}")
        version, entries = outer["version"], outer["entries"]
    if version != _VERSION:
        raise SerializationError(f"load: {name} has version {version!r}, written by a newer Tesserack; upgrade")
    found: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    paths: dict[str, Any] = {}
    storage: dict[MetadataIndex, dict[str, str]] = {}
    for key, entry in entries.items():
        with blaming(name, f"the entry of {key!r} is wrong"):
            found[key] = _entry(key, entry, storage)
            if "path" in entry:
                paths[key] = tuple(map(_key_of, entry["path"]))
    return Metadata(found, paths or None, storage, version=str(version))


def _entry(key: str, entry: Any, storage: dict[Any, Any]) -> TensorStorageMetadata | BytesStorageMetadata:
    chunks = []
    for part in entry["parts"]:
        offsets = _numbers(part["offsets"]) if "offsets" in part else None
        storage[MetadataIndex(key, offsets)] = {"file": _file(part["file"]), "key": str(part["key"])}
        if offsets is not None:
            chunks.append(ChunkStorageMetadata(offsets, _numbers(part["sizes"])))
    if "dtype" not in entry:
        return BytesStorageMetadata()
    dtype = getattr(ts, entry["dtype"])
    if not isinstance(dtype, ts.dtype):
        raise ValueError(f"dtype {entry['dtype']!r}")
    size = _numbers(entry["size"])
    for chunk in chunks:
        if any(o + n > s for o, n, s in zip(chunk.offsets, chunk.sizes, size, strict=True)):
            raise ValueError(f"{chunk} of size {size}")
    return TensorStorageMetadata(TensorProperties(dtype=dtype), size, chunks)


def _numbers(given: Any) -> tuple[int, ...]:
    if not isinstance(given, list) or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in given):
        raise ValueError(f"expected sizes, got {given!r}")
    return tuple(given)


def _file(given: Any) -> str:
    """A name of a file in the folder itself."""
    if not isinstance(given, str) or not given or "/" in given or "\\" in given or given in (".", ".."):
        raise ValueError(f"expected a name of a file beside it, got {given!r}")
    return given


def _key_of(step: Any) -> Any:
    return Position(step["position"]) if isinstance(step, dict) else step
