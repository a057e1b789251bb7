"""What a place for checkpoints is asked."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from tesserack.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from tesserack.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner

__all__ = ["StorageReader", "StorageWriter", "WriteResult", "waited"]

Id = str | os.PathLike[str]


@dataclass(frozen=True)
class WriteResult:
    """An item that has been written: how many bytes, and what the storage needs to find it."""

    index: MetadataIndex
    size_in_bytes: int
    storage_data: Any


class StorageWriter(ABC):
    """Writes checkpoints: ``write_data`` on every rank, ``finish`` on the first once all have written."""

    @abstractmethod
    def reset(self, checkpoint_id: Id | None = None) -> None:
        """A new checkpoint, at another place if one is given."""

    @abstractmethod
    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """A save begins."""

    @abstractmethod
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """A rank's plan, with what the storage adds."""

    @abstractmethod
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """The plans of all ranks, with what the storage adds."""

    @abstractmethod
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Any:
        """Write a plan's items; returns a future of a list of :class:`WriteResult`."""

    @abstractmethod
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write what the checkpoint says of itself: it is whole now."""

    @classmethod
    @abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: Id) -> bool:
        """Whether a place is one of this storage's."""

    def storage_meta(self) -> StorageMeta | None:
        """What planners are told of the storage."""
        return None


class StorageReader(ABC):
    """Reads checkpoints."""

    @abstractmethod
    def reset(self, checkpoint_id: Id | None = None) -> None:
        """Another checkpoint, at another place if one is given."""

    @abstractmethod
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the checkpoint says of itself."""

    @abstractmethod
    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """A load begins."""

    @abstractmethod
    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """A rank's plan, with what the storage adds."""

    @abstractmethod
    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans of all ranks, with what the storage adds."""

    @abstractmethod
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Any:
        """Read a plan's items; returns a future of None."""

    @classmethod
    @abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: Id) -> bool:
        """Whether a place is one of this storage's."""


def waited(answer: Any) -> Any:
    """What a future of a storage holds once it is done: one of PyTorch's, or of ``concurrent.futures``."""
    return answer.wait() if hasattr(answer, "wait") else answer.result()
