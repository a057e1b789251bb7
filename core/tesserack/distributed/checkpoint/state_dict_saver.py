"""Saving: what all ranks have, as one checkpoint."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tesserack import Tensor
from tesserack.distributed import _world
from tesserack.distributed.checkpoint._copies import copied
from tesserack.distributed.checkpoint._together import Together
from tesserack.distributed.checkpoint.default_planner import DefaultSavePlanner
from tesserack.distributed.checkpoint.filesystem import FileSystemWriter
from tesserack.distributed.checkpoint.metadata import Metadata
from tesserack.distributed.checkpoint.planner import SavePlan, SavePlanner
from tesserack.distributed.checkpoint.stateful import Stateful
from tesserack.distributed.checkpoint.storage import StorageWriter, waited

__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save", "save_state_dict"]

Id = str | os.PathLike[str]


class AsyncCheckpointerType(Enum):
    """Where an asynchronous save runs. ``PROCESS`` is a thread here, too: copies and files need no interpreter."""

    THREAD = "thread"
    PROCESS = "process"


@dataclass
class AsyncSaveResponse:
    """What an asynchronous save leaves where a stager answers with a future: when tensors may be changed, and when all
    is saved."""

    staging_completion: Future[None]
    upload_completion: Future[Any]


def _alone(no_dist: bool) -> bool:
    return no_dist or not _world.is_initialized()


def _writer(storage_writer: StorageWriter | None, checkpoint_id: Id | None) -> StorageWriter:
    if storage_writer is not None:
        if checkpoint_id is not None or not isinstance(storage_writer, FileSystemWriter):
            storage_writer.reset(checkpoint_id)
        else:
            storage_writer.reset()
        return storage_writer
    if checkpoint_id is None:
        raise RuntimeError("`checkpoint_id` must be specified if storage_writer/storage_reader is None.")
    return FileSystemWriter(checkpoint_id)


def _states(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Objects that have a state, by their state."""
    return {key: value.state_dict() if _is_stateful(value) else value for key, value in state_dict.items()}


def _is_stateful(value: Any) -> bool:
    return isinstance(value, Stateful) and not isinstance(value, (Tensor, Mapping))


def save(
    state_dict: Mapping[str, Any],
    *,
    checkpoint_id: Id | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Save what all ranks of a group have as one checkpoint, of which each writes its parts.

    Args:
        state_dict: tensors, ``DTensor``s, numbers, texts, dicts and lists of these, and objects with a ``state_dict()``
            such as modules and optimizers. Plain tensors are taken to be the same on all ranks.
        checkpoint_id: the folder.
        storage_writer, planner: what writes, and what decides who writes what.
        process_group: the ranks, by default all.
        no_dist: this process alone.

    Returns what the checkpoint says of itself. Raises :class:`CheckpointException` on all ranks where one fails.

    >>> import tempfile, tesserack as ts
    >>> folder = tempfile.mkdtemp()
    >>> metadata = save({"weight": ts.ones(2), "epoch": 3}, checkpoint_id=folder)
    >>> state = {"weight": ts.zeros(2), "epoch": 0}
    >>> ts.distributed.checkpoint.load(state, checkpoint_id=folder)
    >>> state
    {'weight': tensor([1., 1.]), 'epoch': 3}
    """
    if not use_collectives:
        raise NotImplementedError("save: use_collectives=False is absent; save each rank's own with no_dist=True")
    writer = _writer(storage_writer, checkpoint_id)
    return _save(_states(state_dict), writer, planner, Together(process_group, _alone(no_dist)))


def save_state_dict(
    state_dict: Mapping[str, Any],
    storage_writer: StorageWriter,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
) -> Metadata:
    """The older form of :func:`save`, of a state dict without objects in it."""
    storage_writer.reset()
    together = Together(process_group, _alone(no_dist), coordinator_rank)
    return _save(dict(state_dict), storage_writer, planner, together)


def _save(state_dict: dict[str, Any], writer: StorageWriter, given: SavePlanner | None, together: Together) -> Metadata:
    planner = given or DefaultSavePlanner()
    metadata: list[Metadata] = []

    def local() -> SavePlan:
        planner.set_up_planner(state_dict, writer.storage_meta(), together.is_coordinator)
        writer.set_up_storage_writer(together.is_coordinator)
        return writer.prepare_local_plan(planner.create_local_plan())

    def decide(plans: list[SavePlan]) -> list[SavePlan]:
        plans, made = planner.create_global_plan(plans)
        metadata.append(made)
        return writer.prepare_global_plan(plans)

    plan = together.planned("plan", local, decide)

    def write() -> Any:
        return waited(writer.write_data(planner.finish_plan(plan), planner))

    def finish(results: list[Any]) -> Metadata:
        writer.finish(metadata[0], results)
        return metadata[0]

    made: Metadata = together.finished("write", write, finish)
    return made


# --- asynchronously ---------------------------------------------------------------------------------------------------

_groups: dict[Any, Any] = {}  # by group, one of the same ranks whose collectives are saves' alone
_last: dict[Any, threading.Thread] = {}  # by group: its saves use one group's collectives, in order
_under_way: set[threading.Thread] = set()


def async_save(
    state_dict: Mapping[str, Any],
    *,
    checkpoint_id: Id | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Any = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Any:
    """As :func:`save`, from copies of the tensors and in a thread of its own: training may go on at once.

    Returns a future of what :func:`save` returns, or of what it raises; wait for it before the program ends. The ranks
    get a group of their own for it, so that all call this in the same order; saves of one group follow each other.

    >>> import tempfile, tesserack as ts
    >>> weight = ts.ones(2)
    >>> saved = async_save({"weight": weight}, checkpoint_id=tempfile.mkdtemp())
    >>> list(saved.result().state_dict_metadata)
    ['weight']
    """
    if not use_collectives:
        raise NotImplementedError("async_save: use_collectives=False is absent")
    writer = _writer(storage_writer, checkpoint_id)
    alone = _alone(no_dist)
    group = None if alone else _own_group(process_group)
    given = _states(state_dict)
    held = async_stager.stage(given) if async_stager is not None else copied(given)
    staged = held if isinstance(held, Future) else None
    if staged is not None:
        held = staged.result()
    elif async_stager is not None and async_stager.should_synchronize_after_execute:
        async_stager.synchronize_staging()
    done: Future[Metadata] = Future()
    before = _last.get(group)

    def run() -> None:
        if before is not None:
            before.join()
        try:
            done.set_result(_save(held, writer, planner, Together(group, alone)))
        except BaseException as error:
            done.set_exception(error)
        finally:
            _under_way.discard(thread)
            if _last.get(group) is thread:
                del _last[group]

    thread = threading.Thread(target=run, name="async_save")
    _under_way.add(thread)
    _last[group] = thread
    thread.start()
    if staged is None:
        return done
    completed: Future[None] = Future()
    completed.set_result(None)
    return AsyncSaveResponse(completed, done)


def _own_group(process_group: Any) -> Any:
    made = _world.resolve(process_group)
    assert made is not None
    found = _groups.get(made)
    if found is None or found.group_name not in _world._world.groups:
        found = _groups[made] = _world.new_group(list(made.ranks), use_local_synchronization=True, sort_ranks=False)
    return found
