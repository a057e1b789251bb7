"""Batches cut into microbatches, and results put together again."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks", "split_tensor", "sum_reducer"]


class TensorChunkSpec:
    """The dim along which a tensor is cut.

    >>> TensorChunkSpec.from_tuple((0, 1))
    (TensorChunkSpec(0), TensorChunkSpec(1))
    """

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> tuple[TensorChunkSpec, ...]:
        """One for each positional argument."""
        return tuple(map(TensorChunkSpec, chunk_dims))

    @staticmethod
    def from_dict(chunk_dims: Mapping[str, int]) -> dict[str, TensorChunkSpec]:
        """One for each keyword."""
        return {name: TensorChunkSpec(dim) for name, dim in chunk_dims.items()}


class _Replicate:
    """Of an argument that every microbatch is given whole."""


class _CustomReducer:
    """How the results of microbatches become one, if they are not put side by side."""

    def __init__(self, init_value: Any, reduce_fn: Callable[[Any, Any], Any]) -> None:
        self.init_value, self.reduce_fn = init_value, reduce_fn


class _LossReducer(_CustomReducer):
    pass


sum_reducer = _LossReducer(0.0, operator.add)


def split_tensor(tensor: Tensor, spec: TensorChunkSpec, chunks: int) -> list[Tensor]:
    """A tensor in as many parts, the first ones larger by one where they are not alike."""
    if tensor.shape[spec.split_dim] < chunks:
        size = tensor.shape[spec.split_dim]
        raise AssertionError(f"Tensor size {size} is smaller than num_chunks {chunks} along dim {spec.split_dim}")
    return list(ts.tensor_split(tensor, chunks, spec.split_dim))


def _chunked(value: Any, spec: Any, chunks: int) -> list[Any]:
    if isinstance(value, Mapping):
        parts = {k: _chunked(v, spec[k] if isinstance(spec, Mapping) else spec, chunks) for k, v in value.items()}
        return [{k: part[i] for k, part in parts.items()} for i in range(chunks)]
    if isinstance(value, (list, tuple)):
        each = spec if isinstance(spec, (list, tuple)) else [spec] * len(value)
        items = [_chunked(v, s, chunks) for v, s in zip(value, each, strict=True)]
        return [type(value)(item[i] for item in items) for i in range(chunks)]
    if isinstance(value, Tensor) and spec is not _Replicate and not isinstance(spec, _Replicate):
        return split_tensor(value, spec or TensorChunkSpec(0), chunks)
    return [value] * chunks


def split_args_kwargs_into_chunks(
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    chunks: int,
    args_chunk_spec: tuple[Any, ...] | None = None,
    kwargs_chunk_spec: dict[str, Any] | None = None,
) -> tuple[list[tuple[Any, ...]], list[dict[str, Any]]]:
    """The arguments of each microbatch: tensors are cut along dim 0 or as specified, all else is given to each."""
    positional = _chunked(tuple(args), args_chunk_spec, chunks)
    return positional, _chunked(dict(kwargs or {}), kwargs_chunk_spec, chunks)


def merge_chunks(chunks: Sequence[Any], chunk_spec: Any = None) -> Any:
    """What :func:`split_args_kwargs_into_chunks` has cut, or results like it, as one.

    >>> import tesserack as ts
    >>> merge_chunks([ts.zeros(1), ts.ones(2)])
    tensor([0., 1., 1.])
    """
    first = chunks[0]
    if isinstance(first, Mapping):
        return {k: merge_chunks([c[k] for c in chunks], _spec_of(chunk_spec, k)) for k in first}
    if isinstance(first, (list, tuple)):
        return type(first)(merge_chunks([c[k] for c in chunks], _spec_of(chunk_spec, k)) for k in range(len(first)))
    if isinstance(chunk_spec, (list, tuple)) and len(chunk_spec) == 1:
        chunk_spec = chunk_spec[0]
    if isinstance(chunk_spec, _CustomReducer):
        total = chunk_spec.init_value
        for chunk in chunks:
            total = chunk_spec.reduce_fn(total, chunk)
        return total
    if isinstance(first, Tensor) and first.ndim:
        return ts.cat(list(chunks), chunk_spec.split_dim if isinstance(chunk_spec, TensorChunkSpec) else 0)
    return ts.stack(list(chunks)) if isinstance(first, Tensor) else first


def _spec_of(spec: Any, key: Any) -> Any:
    if isinstance(spec, Mapping) or (isinstance(spec, (list, tuple)) and isinstance(key, int)):
        return spec[key]
    return spec
