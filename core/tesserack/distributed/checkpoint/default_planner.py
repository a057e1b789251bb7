"""The planners that are used unless others are given."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed.checkpoint._items import local_part, read_items, write_items
from tesserack.distributed.checkpoint._nested import (
    Path,
    flatten_state_dict,
    set_element,
)
from tesserack.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from tesserack.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)

__all__ = [
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "create_default_global_load_plan",
    "create_default_global_save_plan",
    "create_default_local_load_plan",
    "create_default_local_save_plan",
]


class DefaultSavePlanner(SavePlanner):
    """Every rank writes its parts of ``DTensor``s; what all have is written by one, so that all write about as much.

    Args:
        flatten_state_dict: nested dicts get dotted names.
        dedup_save_to_lowest_rank: the first rank that has something writes it.
        flatten_sharded_tensors, dedup_replicated_tensors, enable_plan_caching: accepted, and have no effect.
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        self.mappings: dict[str, Path] = {}
        self.state_dict: dict[str, Any] = {}

    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.is_coordinator = state_dict, is_coordinator

    def create_local_plan(self) -> SavePlan:
        plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        self.plan = dataclasses.replace(plan, planner_data=self.mappings) if self.flatten_state_dict else plan
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        plans = _without_doubles(all_plans, self.dedup_save_to_lowest_rank)
        plans, metadata = create_default_global_save_plan(plans)
        if self.flatten_state_dict:
            paths: dict[str, Path] = {}
            for plan in reversed(plans):
                paths.update(plan.planner_data or {})
            metadata = dataclasses.replace(metadata, planner_data=paths)
        self.global_plan, self.metadata = plans, metadata
        return plans, metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        found: Tensor | io.BytesIO = self.transform_object(write_item, self.lookup_object(write_item.index))
        return found

    def lookup_object(self, index: MetadataIndex) -> Any:
        """What the state dict has by a name: of tensors, this rank's part."""
        value = self.state_dict[index.fqn]
        return local_part(value) if isinstance(value, Tensor) else value

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """What is written of a value: a tensor itself, anything else as ``tesserack.save`` writes it. ``TypeError`` for
        what that does not take, with the name."""
        if write_item.type is not WriteItemType.BYTE_IO:
            return object
        data = io.BytesIO()
        try:
            ts.save(object, data)
        except TypeError as error:
            raise TypeError(f"save: {write_item.index.fqn}: {error}") from None
        return data


class DefaultLoadPlanner(LoadPlanner):
    """Every rank reads what its parts overlap with, into the tensors of its state dict; other values are replaced.

    Args:
        flatten_state_dict: nested dicts have dotted names.
        allow_partial_load: names that the checkpoint lacks stay as they are, else they are a ``RuntimeError``.
        flatten_sharded_tensors: accepted, and has no effect.
    """

    def __init__(
        self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, allow_partial_load: bool = False
    ) -> None:
        self.flatten_state_dict, self.allow_partial_load = flatten_state_dict, allow_partial_load
        self.original_state_dict: dict[str, Any] = {}
        self.mappings: dict[str, Path] = {}
        self.state_dict: dict[str, Any] = {}
        self.metadata: Metadata | None = None

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        _materialize(state_dict)
        self.original_state_dict = state_dict
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        name, loaded = read_item.dest_index.fqn, ts.load(value)
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[name], loaded)
        else:
            self.state_dict[name] = loaded

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """This rank's part of a tensor."""
        return local_part(self.state_dict[index.fqn])

    def transform_tensor(self, read_item: ReadItem, tensor: Tensor) -> Tensor:
        """The region that an item fills."""
        for dim, (begin, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
            tensor = tensor.narrow(dim, begin, length)
        return tensor

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """It lies where it belongs already."""


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Reads all that there is, into an empty state dict, whole; or the names of ``keys``, and what is below them."""

    def __init__(self, keys: Iterable[str] | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.keys = None if keys is None else set(keys)

    def _wanted(self, name: str, paths: dict[str, Path]) -> bool:
        if self.keys is None or name in self.keys:
            return True
        path = paths.get(name, (name,))
        return any(".".join(map(str, path[:n])) in self.keys for n in range(1, len(path)))

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        assert metadata is not None
        if state_dict:
            raise ValueError("load: expected an empty state dict to be filled with all that there is")
        paths = metadata.planner_data or {}
        for name, stored in metadata.state_dict_metadata.items():
            if self._wanted(name, paths):
                value = None
                if isinstance(stored, TensorStorageMetadata):
                    value = ts.empty(tuple(stored.size), dtype=stored.properties.dtype)
                set_element(state_dict, paths.get(name, (name,)), value)
        super().set_up_planner(state_dict, metadata, is_coordinator)


def _materialize(state_dict: dict[str, Any]) -> None:
    """Give tensors on the meta device memory, in place."""
    flat, paths = flatten_state_dict(state_dict)
    for name, value in flat.items():
        if isinstance(value, Tensor) and value.is_meta:
            set_element(state_dict, paths[name], ts.empty_like(value, device="cpu"))


# --- plans ------------------------------------------------------------------------------------------------------------


def create_default_local_save_plan(state_dict: dict[str, Any], is_coordinator: bool) -> SavePlan:
    """What a rank has."""
    return SavePlan([item for name, value in state_dict.items() for item in write_items(name, value)])


def _size(item: WriteItem) -> int:
    return item.tensor_storage_size() or 1


def _without_doubles(plans: Sequence[SavePlan], lowest: bool) -> list[SavePlan]:
    """Each thing that several ranks have is written by one: the one that writes least so far, or the first."""
    holders: dict[MetadataIndex, list[int]] = {}
    items: dict[MetadataIndex, WriteItem] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            holders.setdefault(item.index, []).append(rank)
            items.setdefault(item.index, item)
    load = [0] * len(plans)
    writers: dict[MetadataIndex, int] = {}
    for index in sorted(holders, key=lambda i: (len(holders[i]), -_size(items[i]))):
        chosen = holders[index][0] if lowest else min(holders[index], key=lambda rank: load[rank])
        writers[index] = chosen
        load[chosen] += _size(items[index])
    return [
        dataclasses.replace(plan, items=[item for item in plan.items if writers[item.index] == rank])
        for rank, plan in enumerate(plans)
    ]


def create_default_global_save_plan(all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
    """The plans, and what the checkpoint is to say of itself. ``ValueError`` where parts do not make up a whole."""
    found: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    for plan in all_plans:
        for item in plan.items:
            _add(found, item)
    for name, stored in found.items():
        if isinstance(stored, TensorStorageMetadata):
            _check_whole(name, stored)
    return all_plans, Metadata(found)


def _add(found: dict[str, TensorStorageMetadata | BytesStorageMetadata], item: WriteItem) -> None:
    name, data = item.index.fqn, item.tensor_data
    before = found.get(name)
    if data is None:
        if isinstance(before, TensorStorageMetadata):
            raise ValueError(f"save: {name} is a tensor on some ranks and none on others")
        found[name] = BytesStorageMetadata()
        return
    if before is None:
        before = found[name] = TensorStorageMetadata(data.properties, data.size, [])
    if isinstance(before, BytesStorageMetadata) or before.properties.dtype != data.properties.dtype:
        raise ValueError(f"save: {name} is not of one dtype on all ranks")
    if before.size != data.size:
        raise ValueError(f"save: {name} is of size {before.size} on some ranks, and {data.size} on others")
    before.chunks.append(data.chunk)


def _check_whole(name: str, stored: TensorStorageMetadata) -> None:
    covered = sum(math.prod(chunk.sizes) for chunk in stored.chunks)
    if covered != math.prod(stored.size):
        raise ValueError(
            f"save: the parts of {name} have {covered} elements in all, expected {math.prod(stored.size)} of size "
            f"{stored.size}: ranks divide it in different ways, or not all take part"
        )
    ordered = sorted(stored.chunks, key=lambda chunk: chunk.offsets)
    for chunk in ordered:
        if any(o < 0 or o + n > s for o, n, s in zip(chunk.offsets, chunk.sizes, stored.size, strict=True)):
            raise ValueError(f"save: a part of {name} reaches out of it: {chunk} of size {stored.size}")
    _check_apart(name, ordered)


def _check_apart(name: str, ordered: Sequence[ChunkStorageMetadata]) -> None:
    for number, a in enumerate(ordered):
        for b in ordered[number + 1 :]:
            if a.offsets and b.offsets[0] >= a.offsets[0] + a.sizes[0]:
                break
            apart = (
                x >= y + n or y >= x + m for x, m, y, n in zip(a.offsets, a.sizes, b.offsets, b.sizes, strict=True)
            )
            if not any(apart):
                raise ValueError(f"save: parts of {name} overlap: {a} and {b}")


def create_default_local_load_plan(state_dict: dict[str, Any], metadata: Metadata, strict: bool = True) -> LoadPlan:
    """What a rank needs. ``RuntimeError`` for names that the checkpoint lacks, if ``strict``."""
    items = []
    for name, value in state_dict.items():
        stored = metadata.state_dict_metadata.get(name)
        if stored is not None:
            items += read_items(name, stored, value)
        elif strict:
            near = _near(name, metadata.state_dict_metadata)
            raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.{near}")
    return LoadPlan(items)


def _near(name: str, known: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, list(known), 3)
    return f" It has {', '.join(close)}" if close else ""


def create_default_global_load_plan(all_plans: list[LoadPlan]) -> list[LoadPlan]:
    """The plans as they are."""
    return all_plans
