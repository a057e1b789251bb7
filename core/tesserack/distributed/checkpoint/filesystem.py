"""Checkpoints in a folder: a safetensors file of each rank, and one file that says what there is, written last.

Files of one save are named apart from those of others. The file ``.metadata.json`` is put in its place in one step once
all of them lie on the disk, and names them: a save that is cut short leaves what was there before, or nothing that is
taken for a checkpoint.
"""

from __future__ import annotations

import contextlib
import io
import os
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed.checkpoint._described import METADATA, described, undescribed
from tesserack.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from tesserack.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from tesserack.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from tesserack.serialization._files import Sink
from tesserack.serialization._safetensors import (
    SerializationError,
    map_file,
    read_header,
    read_tensor,
    write_tensors,
)
from tesserack.utils.futures import Future

__all__ = ["FileSystemReader", "FileSystemWriter", "SerializationFormat"]

_SUFFIX = ".safetensors"
Id = str | os.PathLike[str]


class SerializationFormat(Enum):
    """How tensors are written: always as safetensors here."""

    TORCH_SAVE = "torch_save"
    SAFETENSORS = "safetensors"


def _key(index: MetadataIndex, kind: WriteItemType) -> str:
    """The name of an item in its file."""
    if kind is not WriteItemType.SHARD or index.offset is None:
        return index.fqn
    return f"{index.fqn}[{','.join(map(str, index.offset))}]"


class FileSystemWriter(StorageWriter):
    """Writes checkpoints into a folder.

    Args:
        path: the folder; it is made if it is not there.
        sync_files: wait until the bytes lie on the disk.
        overwrite: whether a checkpoint that is there may be replaced; else that is a ``RuntimeError``.
        others: accepted, and have no effect.
    """

    def __init__(
        self,
        path: Id,
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        _extensions: Sequence[Any] | None = None,
        serialization_format: SerializationFormat = SerializationFormat.SAFETENSORS,
    ) -> None:
        self.path, self.sync_files, self.overwrite = Path(path), sync_files, overwrite
        self.save_id = uuid.uuid4().hex[:12]

    @property
    def checkpoint_id(self) -> Id:
        """The folder."""
        return self.path

    def reset(self, checkpoint_id: Id | None = None) -> None:
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)
        self.save_id = uuid.uuid4().hex[:12]

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        if is_coordinator and not self.overwrite and (self.path / METADATA).exists():
            raise RuntimeError(f"Checkpoint already exists at {self.path} and overwrite is False")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return [replace(plan, storage_data=f"__{rank}_0") for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        done: Future[list[WriteResult]] = Future()
        try:
            done.set_result(self._written(plan, planner))
        except Exception as error:
            done.set_exception(error)
        return done

    def _written(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        if not plan.items:
            return []
        name = f"{plan.storage_data}.{self.save_id}{_SUFFIX}"
        tensors: dict[str, Tensor] = {}
        results = []
        for item in plan.items:
            key, data = _key(item.index, item.type), _as_tensor(item, planner)
            if key in tensors:
                raise ValueError(f"save: two parts of a state dict are named {key!r}")
            tensors[key] = data
            size = data.numel() * data.element_size()
            results.append(WriteResult(item.index, size, {"file": name, "key": key}))
        with _placed(self.path / name, self.sync_files) as file:
            write_tensors(Sink(file), tensors, {"format": "pt"})
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        found = {result.index: result.storage_data for each in results for result in each}
        for name, stored in metadata.state_dict_metadata.items():
            for chunk in getattr(stored, "chunks", [None]):
                index = MetadataIndex(name, None if chunk is None else chunk.offsets)
                if index not in found:
                    raise RuntimeError(f"save: no rank has written {index}")
        before = _files_of(self.path / METADATA)
        text = described(replace(metadata, storage_data=found))
        with _placed(self.path / METADATA, self.sync_files) as file:
            file.write(text)
        self._tidy(before, {data["file"] for data in found.values()})

    def _tidy(self, before: Iterable[str], wanted: set[str]) -> None:
        """Remove the files of the checkpoint that was replaced."""
        for name in set(before) - wanted:
            with contextlib.suppress(OSError):
                (self.path / name).unlink()

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=self.path, save_id=self.save_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Id) -> bool:
        return isinstance(checkpoint_id, os.PathLike) or "://" not in str(checkpoint_id)


def _as_tensor(item: WriteItem, planner: SavePlanner) -> Tensor:
    data = planner.resolve_data(item)
    if isinstance(data, Tensor):
        return data.detach()
    return ts.frombuffer(bytearray(data.getvalue()) or bytearray(1), dtype=ts.uint8)


@contextlib.contextmanager
def _placed(path: Path, sync: bool) -> Any:
    """A file that is there once it is whole, and not before."""
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.unfinished")
    try:
        with open(unfinished, "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(unfinished, path)
        if sync:
            _sync_folder(path.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _sync_folder(path: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _files_of(path: Path) -> set[str]:
    """The files that a description names; none where there is none, or none that can be read."""
    try:
        storage = undescribed(path.read_bytes(), str(path)).storage_data
    except (OSError, SerializationError):
        return set()
    return {data["file"] for data in storage.values()}


class FileSystemReader(StorageReader):
    """Reads checkpoints from a folder; nothing in them is ever executed."""

    def __init__(self, path: Id, _extension_registry: Any = None) -> None:
        self.path = Path(path)
        self.storage_data: dict[MetadataIndex, dict[str, str]] = {}

    @property
    def checkpoint_id(self) -> Id:
        """The folder."""
        return self.path

    def reset(self, checkpoint_id: Id | None = None) -> None:
        self.storage_data = {}
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        path = self.path / METADATA
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            raise FileNotFoundError(_absent(self.path)) from None
        metadata = undescribed(text, str(path))
        metadata.storage_meta = StorageMeta(checkpoint_id=self.path, load_id=uuid.uuid4().hex[:12])
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.storage_data = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_file: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            by_file.setdefault(self.storage_data[item.storage_index]["file"], []).append(item)
        done: Future[None] = Future()
        for name, items in by_file.items():
            self._read_file(self.path / name, items, planner)
        done.set_result(None)
        return done

    def _read_file(self, path: Path, items: Sequence[ReadItem], planner: LoadPlanner) -> None:
        with open(path, "rb") as file:
            entries, _, start, _ = read_header(file, str(path))
            mapped = map_file(file)
            for item in items:
                key = self.storage_data[item.storage_index]["key"]
                if key not in entries:
                    raise SerializationError(f"load: {path} has no {key!r}, which {self.path / METADATA} says it has")
                stored = read_tensor(file, str(path), start, entries[key], mapped)
                if item.type is LoadItemType.BYTE_IO:
                    planner.load_bytes(item, io.BytesIO(stored.numpy().tobytes()))
                else:
                    _copy(stored, item, planner)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Id) -> bool:
        return FileSystemWriter.validate_checkpoint_id(checkpoint_id)


def _copy(stored: Tensor, item: ReadItem, planner: LoadPlanner) -> None:
    target = planner.resolve_tensor(item).detach()
    if target.dtype in (ts.complex128, ts.complex32):
        stored = ts.view_as_complex(stored.contiguous())
    for dim, (begin, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
        if begin + length > stored.shape[dim]:
            raise SerializationError(f"load: {item.storage_index} is of shape {tuple(stored.shape)} in its file")
        stored = stored.narrow(dim, begin, length)
    if stored.shape != target.shape:
        raise ValueError(f"req {item.storage_index} mismatch sizes {tuple(target.shape)} vs {tuple(stored.shape)}")
    with ts.no_grad():
        target.copy_(stored)
    planner.commit_tensor(item, target)


def _absent(path: Path) -> str:
    if (path / ".metadata").exists():
        return (
            f"load: {path} is a checkpoint of PyTorch, described by a pickle, which is not opened since it can run "
            "code; write it as one file there, with dcp_to_torch_save, and take that with torch_save_to_dcp"
        )
    if any(path.glob(f"__*{_SUFFIX}")) if path.is_dir() else False:
        return f"load: {path} has no {METADATA}: a save into it was cut short; take an earlier checkpoint"
    return f"load: there is no checkpoint in {path}: it has no {METADATA}"
