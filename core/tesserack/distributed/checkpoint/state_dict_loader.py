"""Loading: from a checkpoint of any number of ranks into what this number of ranks has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tesserack.distributed.checkpoint._together import Together
from tesserack.distributed.checkpoint.default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner
from tesserack.distributed.checkpoint.filesystem import FileSystemReader
from tesserack.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from tesserack.distributed.checkpoint.state_dict_saver import _alone, _is_stateful
from tesserack.distributed.checkpoint.storage import StorageReader, waited

__all__ = ["load", "load_state_dict"]

Id = str | os.PathLike[str]


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Id | None = None,
    storage_reader: StorageReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Fill a state dict from a checkpoint, in place: tensors get the values, of ``DTensor``s each rank its part, in
    whatever way the checkpoint was divided; other values are replaced; objects with ``load_state_dict`` are given
    theirs.

    Arguments are :func:`save`'s. Raises :class:`CheckpointException` on all ranks where one fails: for a name that the
    checkpoint lacks, another size, a file that is damaged. Nothing in a checkpoint is ever executed.
    """
    reader = _reader(storage_reader, checkpoint_id)
    together = Together(process_group, _alone(no_dist))
    keys = sorted(state_dict) if together.alone else _common_keys(state_dict, together)
    states = {}
    for key in keys:
        if key in state_dict:
            value = state_dict[key]
            states[key] = value.state_dict() if _is_stateful(value) else value
    _load(states, reader, planner, together)
    for key, loaded in states.items():
        target: Any = state_dict.get(key)
        if _is_stateful(target):
            target.load_state_dict(loaded)
        else:
            state_dict[key] = loaded


def _common_keys(state_dict: Mapping[str, Any], together: Together) -> list[str]:
    """All ranks' keys, in one order: objects may call collectives for their state."""
    found = together._gathered(sorted(state_dict))
    return sorted({key for each in found for key in each})


def _reader(storage_reader: StorageReader | None, checkpoint_id: Id | None) -> StorageReader:
    if storage_reader is not None:
        storage_reader.reset(checkpoint_id)
        return storage_reader
    if checkpoint_id is None:
        raise RuntimeError("`checkpoint_id` must be specified if storage_writer/storage_reader is None.")
    return FileSystemReader(checkpoint_id)


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: StorageReader,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    """The older form of :func:`load`, of a state dict without objects in it."""
    storage_reader.reset()
    _load(state_dict, storage_reader, planner, Together(process_group, _alone(no_dist), coordinator_rank))


def _load(state_dict: dict[str, Any], reader: StorageReader, given: LoadPlanner | None, together: Together) -> None:
    planner = given or DefaultLoadPlanner()

    def local() -> LoadPlan:
        metadata = reader.read_metadata()
        planner.set_up_planner(state_dict, metadata, together.is_coordinator)
        reader.set_up_storage_reader(metadata, together.is_coordinator)
        return reader.prepare_local_plan(planner.create_local_plan())

    def decide(plans: list[LoadPlan]) -> list[LoadPlan]:
        return reader.prepare_global_plan(planner.create_global_plan(plans))

    plan = together.planned("plan", local, decide)

    def read() -> None:
        waited(reader.read_data(planner.finish_plan(plan), planner))

    together.finished("read", read, lambda results: None)


def _load_state_dict_from_keys(
    keys: set[str] | str | None = None,
    *,
    checkpoint_id: Id | None = None,
    storage_reader: StorageReader | None = None,
    process_group: Any = None,
) -> dict[str, Any]:
    """What a checkpoint has under some names, or all of it, whole on every rank."""
    reader = _reader(storage_reader, checkpoint_id)
    loaded: dict[str, Any] = {}
    wanted = {keys} if isinstance(keys, str) else keys
    planner = _EmptyStateDictLoadPlanner(wanted)
    _load(loaded, reader, planner, Together(process_group, _alone(False)))
    return loaded
