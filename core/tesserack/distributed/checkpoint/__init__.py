"""Checkpoints of several ranks: ``torch.distributed.checkpoint``, by name and meaning.

:func:`save` has each rank write its parts, :func:`load` reads them into what another number of ranks has. Files are
safetensors and JSON, never pickles; a save that is cut short is never taken for a checkpoint.
"""

from tesserack.distributed.checkpoint.api import CheckpointException
from tesserack.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from tesserack.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from tesserack.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from tesserack.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorStorageMetadata,
)
from tesserack.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem
from tesserack.distributed.checkpoint.state_dict_loader import load, load_state_dict
from tesserack.distributed.checkpoint.state_dict_saver import async_save, save, save_state_dict
from tesserack.distributed.checkpoint.stateful import Stateful
from tesserack.distributed.checkpoint.storage import StorageReader, StorageWriter

__all__ = [
    "BytesStorageMetadata",
    "CheckpointException",
    "ChunkStorageMetadata",
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "FileSystemReader",
    "FileSystemWriter",
    "HuggingFaceStorageReader",
    "HuggingFaceStorageWriter",
    "LoadPlan",
    "LoadPlanner",
    "Metadata",
    "ReadItem",
    "SavePlan",
    "SavePlanner",
    "Stateful",
    "StorageReader",
    "StorageWriter",
    "TensorStorageMetadata",
    "WriteItem",
    "async_save",
    "load",
    "load_state_dict",
    "save",
    "save_state_dict",
]
