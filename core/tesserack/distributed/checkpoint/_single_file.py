"""Loading what one file holds into parts of ranks: one rank reads it and tells the others."""

from __future__ import annotations

import os
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _collectives as over
from tesserack.distributed._world import get_rank
from tesserack.distributed.checkpoint._nested import flatten_state_dict
from tesserack.distributed.checkpoint.default_planner import DefaultLoadPlanner
from tesserack.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from tesserack.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from tesserack.distributed.checkpoint.storage import StorageReader
from tesserack.utils.futures import Future

__all__ = ["BroadcastingTorchSaveReader", "DynamicMetaLoadPlanner"]

Id = str | os.PathLike[str]


def _needed(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise RuntimeError(
            f"Non-tensor value identified at {name}. BroadcastingTorchSaveReader only supports loading Tensors."
        )
    return value


class DynamicMetaLoadPlanner(DefaultLoadPlanner):
    """Takes the file to have what the state dict has, in the same sizes. ``RuntimeError`` for values but tensors."""

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        super().set_up_planner(state_dict, metadata, is_coordinator)
        self.metadata = Metadata({name: _whole(_needed(name, value)) for name, value in self.state_dict.items()})


def _whole(value: Tensor) -> TensorStorageMetadata:
    size = tuple(value.shape)
    return TensorStorageMetadata(
        TensorProperties.create_from_tensor(value), size, [ChunkStorageMetadata((0,) * len(size), size)]
    )


class BroadcastingTorchSaveReader(StorageReader):
    """Reads a file of ``torch.save`` on rank ``coordinator_rank``, which sends each tensor to all ranks, who keep
    their parts. With :class:`DynamicMetaLoadPlanner`: the file does not say beforehand what it holds.

    ``load(state, storage_reader=BroadcastingTorchSaveReader(), planner=DynamicMetaLoadPlanner(), checkpoint_id=path)``
    """

    def __init__(self, checkpoint_id: Id | None = None, coordinator_rank: int = 0) -> None:
        self.checkpoint_id, self.coordinator_rank = checkpoint_id, coordinator_rank

    def reset(self, checkpoint_id: Id | None = None) -> None:
        self.checkpoint_id = self.checkpoint_id if checkpoint_id is None else checkpoint_id

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return Metadata({})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if self.checkpoint_id is None:
            raise AssertionError("checkpoint_id must be set before setting up storage reader")

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Any:
        """Every rank takes part in sending every tensor, of which it may need nothing."""
        assert isinstance(planner, DefaultLoadPlanner)
        held = self._held(planner)
        for name, value in sorted(planner.state_dict.items()):
            whole = held.get(name)
            if whole is None:
                whole = ts.empty(tuple(value.shape), dtype=value.dtype)
            over.broadcast(whole, self.coordinator_rank)
            for item in (each for each in plan.items if each.storage_index.fqn == name):
                region = tuple(slice(b, b + n) for b, n in zip(item.storage_offsets, item.lengths, strict=True))
                target = planner.resolve_tensor(item)
                target.detach().copy_(whole[region])
                planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _held(self, planner: DefaultLoadPlanner) -> dict[str, Tensor]:
        """On the rank that reads: the file's tensors, of the sizes and dtypes that are asked for."""
        if get_rank() != self.coordinator_rank:
            return {}
        assert self.checkpoint_id is not None  # checked when the load began
        loaded = ts.load(self.checkpoint_id, map_location="cpu")
        flat = flatten_state_dict(loaded)[0] if planner.flatten_state_dict else loaded
        found = {}
        for name, value in planner.state_dict.items():
            if name not in flat or tuple(flat[name].shape) != tuple(value.shape):
                had = tuple(flat[name].shape) if name in flat else "nothing"
                raise ValueError(f"load: expected {name} of shape {tuple(value.shape)} in the file, which has {had}")
            found[name] = flat[name].detach().to(value.dtype).contiguous()
        return found

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Id) -> bool:
        return os.path.isfile(checkpoint_id)
