"""Items of plans, from what state dicts hold: parts of ``DTensor``s, whole tensors, anything else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tesserack import Tensor, strided
from tesserack.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from tesserack.distributed.checkpoint.planner import (
    BytesIOWriteData,
    LoadItemType,
    ReadItem,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

__all__ = ["chunk_of", "local_part", "read_items", "write_items"]


def is_divided(value: Any) -> bool:
    """Whether a value is a ``DTensor``."""
    return hasattr(value, "placements") and hasattr(value, "_local_tensor")


def is_dense(value: Any) -> bool:
    """Whether a tensor has an element in every place: others are kept as a whole, as what is no tensor is."""
    return bool(value.layout is strided)


def chunk_of(name: str, value: Tensor) -> ChunkStorageMetadata:
    """Where this rank's part lies in the whole. ``ValueError`` of parts of sums."""
    if not is_divided(value):
        return ChunkStorageMetadata((0,) * value.ndim, tuple(value.shape))
    divided: Any = value
    if any(placement.is_partial() for placement in divided.placements):
        raise ValueError(
            f"save: expected {name} to have parts that are complete, got {divided.placements}; redistribute it"
        )
    ((offsets, sizes),) = [_pair(chunk) for chunk in divided.__create_chunk_list__()]
    return ChunkStorageMetadata(tuple(offsets), tuple(sizes))


def _pair(chunk: Any) -> tuple[Any, Any]:
    return (chunk.offsets, chunk.sizes) if hasattr(chunk, "offsets") else tuple(chunk)


def local_part(value: Any) -> Tensor:
    """This rank's part of a tensor."""
    return (value._local_tensor if is_divided(value) else value).detach()  # type: ignore[no-any-return]


def write_items(name: str, value: Any) -> list[WriteItem]:
    """What a rank has of a value: nothing, where its part is empty and others' are not."""
    if not isinstance(value, Tensor) or not is_dense(value):
        return [WriteItem(MetadataIndex(name), WriteItemType.BYTE_IO, bytes_io_data=BytesIOWriteData(0))]
    chunk = chunk_of(name, value)
    if is_divided(value) and not math.prod(chunk.sizes) and value.numel():
        return []
    data = TensorWriteData(chunk, TensorProperties.create_from_tensor(local_part(value)), tuple(value.shape))
    kind = WriteItemType.SHARD if is_divided(value) else WriteItemType.TENSOR
    return [WriteItem(MetadataIndex(name, chunk.offsets), kind, tensor_data=data)]


def read_items(name: str, stored: TensorStorageMetadata | BytesStorageMetadata, value: Any) -> list[ReadItem]:
    """What a rank needs of what is stored, for its part. ``ValueError`` for another size, or parts that are missing."""
    if isinstance(stored, BytesStorageMetadata):
        if isinstance(value, Tensor) and is_dense(value):
            raise ValueError(f"load: {name} is a tensor here, and none in the checkpoint")
        nowhere: tuple[int, ...] = (0,)
        index = MetadataIndex(name)
        return [ReadItem(LoadItemType.BYTE_IO, index, nowhere, index, nowhere, nowhere)]
    if not isinstance(value, Tensor):
        raise ValueError(
            f"load: {name} is a tensor of size {tuple(stored.size)} in the checkpoint, and {type(value).__name__} "
            "here; give a tensor to be filled"
        )
    if tuple(value.shape) != tuple(stored.size):
        raise ValueError(
            f"Size mismatch between saved {tuple(stored.size)} and current: {tuple(value.shape)} for {name}"
        )
    mine = chunk_of(name, value)
    items, found = [], 0
    for number, chunk in enumerate(stored.chunks):
        overlap = _overlap(mine, chunk)
        if overlap is not None:
            begins, lengths = overlap
            found += math.prod(lengths)
            items.append(
                ReadItem(
                    LoadItemType.TENSOR,
                    MetadataIndex(name, mine.offsets, 0),
                    _minus(begins, mine.offsets),
                    MetadataIndex(name, chunk.offsets, number),
                    _minus(begins, chunk.offsets),
                    lengths,
                )
            )
    wanted = math.prod(mine.sizes)
    if found != wanted:
        raise ValueError(
            f"load: the checkpoint has {found} of the {wanted} elements of {name} that begin at {mine.offsets}: parts "
            "of it are missing"
        )
    return items


def _minus(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def _overlap(a: ChunkStorageMetadata, b: ChunkStorageMetadata) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Where two parts overlap, and how far; None where they do not."""
    begins = tuple(max(x, y) for x, y in zip(a.offsets, b.offsets, strict=True))
    ends = [min(x + m, y + n) for x, m, y, n in zip(a.offsets, a.sizes, b.offsets, b.sizes, strict=True)]
    lengths = _minus(ends, begins)
    return (begins, lengths) if all(length > 0 for length in lengths) else None
