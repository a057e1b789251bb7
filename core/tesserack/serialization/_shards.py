"""State dicts in several safetensors files with an index, ``model.safetensors.index.json``, as model hubs keep them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.serialization._files import destination
from tesserack.serialization._safetensors import (
    MAX_HEADER,
    SerializationError,
    blaming,
    has_code,
    map_file,
    parse_json,
    read_header,
    read_tensor,
    write_tensors,
)

__all__ = ["load_shards", "save_shards"]

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def _bytes_of(size: int | str) -> int:
    """``2_000_000`` or ``"2MB"`` in bytes."""
    match = re.fullmatch(r"\s*(\d+)\s*([KMG]I?B)?\s*", str(size).upper())
    if match is None or not int(match[1]):
        raise ValueError(f"save: expected max_shard_size to be bytes or a text such as '5GB', got {size!r}")
    return int(match[1]) * _UNITS[match[2] or ""]


def _parts(tensors: Mapping[str, Tensor], limit: int) -> list[dict[str, Tensor]]:
    """The tensors in order, as many to a part as fit."""
    parts: list[dict[str, Tensor]] = [{}]
    held = 0
    for name, tensor in tensors.items():
        if parts[-1] and held + tensor.nbytes > limit:
            parts.append({})
            held = 0
        parts[-1][name] = tensor
        held += tensor.nbytes
    return parts


def save_shards(obj: Any, index: str, max_shard_size: int | str) -> None:
    """Writes the files, and last of all the index. Tensors that share memory are stored apart.

    Raises ``TypeError`` unless ``obj`` is a dict from names to tensors.
    """
    if not isinstance(obj, Mapping) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in obj.items()):
        raise TypeError("save: an index of several files expects a dict from names to tensors, such as a state_dict()")
    for name, tensor in obj.items():
        if tensor.dtype in (ts.complex128, ts.complex32) or not has_code(tensor.dtype):
            other = "view_as_real" if tensor.dtype.is_complex else ".view(uint8)"
            raise TypeError(f"save: {name!r} is {tensor.dtype}, which safetensors files have no code for; use {other}")
    limit = _bytes_of(max_shard_size)
    folder, stem = os.path.split(index.removesuffix(".index.json").removesuffix(".safetensors"))
    parts = _parts(obj, limit)
    where = {}
    for number, part in enumerate(parts, 1):
        file = f"{stem}-{number:05}-of-{len(parts):05}.safetensors"
        with destination(os.path.join(folder or ".", file)) as sink:
            write_tensors(sink, part, {"format": "pt"})
        where.update(dict.fromkeys(part, file))
    described = {"metadata": {"total_size": sum(t.nbytes for t in obj.values())}, "weight_map": where}
    with destination(index) as sink:
        sink.write(json.dumps(described, indent=2).encode())


def load_shards(index: str, place: Callable[[Tensor, str], Tensor], mapped: bool) -> dict[str, Tensor]:
    """The tensors of the files beside an index, which says where each lies."""
    with open(index, "rb") as file, blaming(index, "it is no index of safetensors files"):
        if os.fstat(file.fileno()).st_size > MAX_HEADER:
            raise ValueError("it is too large")
        where = parse_json(file.read().decode())["weight_map"]
        for key, shard in where.items():
            if not isinstance(shard, str) or shard in ("", ".", "..") or {"/", "\0", os.sep} & {*shard}:
                raise ValueError(f"the file of tensor {key!r} lies elsewhere: {shard!r}")
    folder, found = os.path.dirname(index), {}
    for shard in dict.fromkeys(where.values()):
        path = os.path.join(folder, shard)
        with open(path, "rb") as file:
            entries, _, start, _ = read_header(file, path)
            memory = map_file(file) if mapped else None
            for key in (key for key, holder in where.items() if holder == shard):
                if key not in entries:
                    raise SerializationError(f"load: {path} has no tensor {key!r}, though {index} says so")
                found[key] = place(read_tensor(file, path, start, entries[key], memory), "cpu")
    return {key: found[key] for key in where}
