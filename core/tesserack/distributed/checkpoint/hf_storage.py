"""Folders of plain safetensors files, such as models are published in, as checkpoints."""

from __future__ import annotations

import os
from typing import Any

from tesserack.distributed.checkpoint.filesystem import FileSystemReader
from tesserack.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from tesserack.serialization._safetensors import SerializationError, read_header

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]


class HuggingFaceStorageReader(FileSystemReader):
    """Reads the ``*.safetensors`` files of a folder: each rank the parts of tensors that it needs, under their names.

    >>> import tempfile, tesserack as ts
    >>> from tesserack.distributed import checkpoint
    >>> folder = tempfile.mkdtemp()
    >>> ts.save({"weight": ts.ones(2)}, folder + "/model.safetensors")
    >>> state = {"weight": ts.zeros(2)}
    >>> checkpoint.load(state, storage_reader=HuggingFaceStorageReader(folder))
    >>> state["weight"]
    tensor([1., 1.])
    """

    def __init__(self, path: str | os.PathLike[str], thread_count: int = 1) -> None:
        super().__init__(path)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        files = sorted(self.path.glob("*.safetensors"))
        if not files:
            raise FileNotFoundError(f"load: there are no safetensors files in {self.path}")
        found: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
        storage: dict[MetadataIndex, dict[str, str]] = {}
        for path in files:
            with open(path, "rb") as file:
                entries = read_header(file, str(path))[0]
            for name, entry in entries.items():
                if name in found:
                    raise SerializationError(f"load: {name} is in two files of {self.path}, {path.name} is one of them")
                shape = tuple(entry.shape)
                first = (0,) * len(shape)
                chunk = ChunkStorageMetadata(first, shape)
                found[name] = TensorStorageMetadata(TensorProperties(dtype=entry.dtype), shape, [chunk])
                storage[MetadataIndex(name, first)] = {"file": path.name, "key": name}
        return Metadata(found, storage_data=storage, storage_meta=StorageMeta(checkpoint_id=self.path))


class HuggingFaceStorageWriter:
    """Absent: ``NotImplementedError``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "HuggingFaceStorageWriter is absent: take get_model_state_dict with full_state_dict, and tesserack.save it "
            "as model.safetensors.index.json"
        )
