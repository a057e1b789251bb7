"""Joining samples into a batch."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["default_collate", "default_convert", "rebuilt_mapping"]


def _is_numpy(value: Any) -> bool:
    # By the name of the module: NumPy is not imported unless the data brings it.
    return type(value).__module__ == "numpy" and hasattr(value, "dtype")


def default_convert(data: Any) -> Any:
    """NumPy arrays inside ``data`` become tensors; everything else stays. Used when ``batch_size=None``.

    >>> default_convert({"a": 1})
    {'a': 1}
    """
    if isinstance(data, Tensor):
        return data
    if _is_numpy(data):
        return data if data.dtype.kind in "SUO" else ts.as_tensor(data)
    if isinstance(data, Mapping):
        return rebuilt_mapping(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(value) for value in data))
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return [default_convert(value) for value in data]
    return data


def default_collate(batch: Sequence[Any]) -> Any:
    """Stack a list of samples along a new first dimension.

    Tensors and NumPy arrays are stacked, floats become a float64 and integers an int64 tensor, strings stay as
    they are; dicts, named tuples and sequences are taken apart, and their fields collated. Raises ``RuntimeError`` for
    sequences of different lengths and ``TypeError`` for anything else.

    >>> default_collate([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}])
    {'x': tensor([1, 2]), 'y': ['a', 'b']}
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return ts.stack(list(batch), 0)
    if _is_numpy(first):
        return _collate_numpy(batch)
    if isinstance(first, float):
        return ts.tensor(list(batch), dtype=ts.float64)
    if isinstance(first, int):
        return ts.tensor(list(batch))
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return rebuilt_mapping(first, {key: default_collate([sample[key] for sample in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(field) for field in _fields(batch)))
    if isinstance(first, Sequence):
        return [default_collate(field) for field in _fields(batch)]
    raise TypeError(
        "default_collate: expected tensors, NumPy arrays, numbers, strings, dicts or sequences, "
        f"got {type(first).__name__}; give the DataLoader a collate_fn"
    )


def _collate_numpy(batch: Sequence[Any]) -> Any:
    if batch[0].dtype.kind in "SUO":
        raise TypeError(f"default_collate: expected numeric NumPy arrays, got dtype {batch[0].dtype}")
    return ts.stack([ts.as_tensor(array) for array in batch], 0)


def _fields(batch: Sequence[Any]) -> list[tuple[Any, ...]]:
    lengths = {len(sample) for sample in batch}
    if len(lengths) != 1:
        raise RuntimeError(
            f"default_collate: each element in list of batch should be of equal size, got lengths {sorted(lengths)}; "
            "pad them in a collate_fn"
        )
    return list(zip(*batch, strict=True))


def rebuilt_mapping(like: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """``items`` in a mapping of the type of ``like``, where that can be built from a dict."""
    if type(like) is dict:
        return items
    try:
        if isinstance(like, MutableMapping):  # a copy keeps what else there is: the default of a defaultdict
            clone = copy.copy(like)
            clone.update(items)
            return clone
        return type(like)(items)  # type: ignore[call-arg]
    except TypeError:
        return items
