"""Joining samples into a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert", "rebuilt"]


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
    return data if isinstance(data, (str, bytes)) else rebuilt(data, default_convert)


def collate(batch: Sequence[Any], *, collate_fn_map: Mapping[Any, Callable[..., Any]] | None = None) -> Any:
    """Join samples by a function for each type: ``collate_fn_map`` maps a type, or a tuple of types, to one.

    The function of the first sample's type is called with the batch and ``collate_fn_map=``; where there is none, that
    of the first entry which the sample is an instance of. Samples of no such type are taken apart if they are
    mappings, named tuples or sequences, and their fields collated. Raises ``RuntimeError`` for sequences of different
    lengths and ``TypeError`` for anything else.

    >>> class Label(str): ...
    >>> collate([{"x": 1, "y": Label("a")}], collate_fn_map={int: lambda b, **_: sum(b), Label: lambda b, **_: len(b)})
    {'x': 1, 'y': 1}
    """
    first = batch[0]
    if collate_fn_map is not None:
        join = collate_fn_map.get(type(first))
        if join is None:
            join = next((each for kind, each in collate_fn_map.items() if isinstance(first, kind)), None)
        if join is not None:
            return join(batch, collate_fn_map=collate_fn_map)
        if collate_fn_map is default_collate_fn_map and _is_numpy(first):
            return _collate_numpy(batch)
    if isinstance(first, Mapping):
        fields = {key: [sample[key] for sample in batch] for key in first}
        joined = {key: collate(field, collate_fn_map=collate_fn_map) for key, field in fields.items()}
        return _mapping_like(first, joined)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(collate(field, collate_fn_map=collate_fn_map) for field in _fields(batch)))
    if isinstance(first, Sequence):
        return _sequence_like(first, [collate(field, collate_fn_map=collate_fn_map) for field in _fields(batch)])
    raise TypeError(
        "default_collate: expected tensors, NumPy arrays, numbers, strings, dicts or sequences, "
        f"got {type(first).__name__}; give the DataLoader a collate_fn"
    )


def default_collate(batch: Sequence[Any]) -> Any:
    """Stack a list of samples along a new first dimension.

    Tensors and NumPy arrays are stacked, floats become a float64 and integers an int64 tensor, strings stay as
    they are; dicts, named tuples and sequences are taken apart, and their fields collated: :func:`collate` by
    ``default_collate_fn_map``, to which programs may add types of their own. Raises ``RuntimeError`` for sequences of
    different lengths and ``TypeError`` for anything else.

    >>> default_collate([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}])
    {'x': tensor([1, 2]), 'y': ['a', 'b']}
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def _collate_tensors(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Tensor:
    return ts.stack(list(batch), 0)


def _collate_floats(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Tensor:
    return ts.tensor(list(batch), dtype=ts.float64)


def _collate_ints(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Tensor:
    return ts.tensor(list(batch))


def _as_they_are(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    return batch


# Without NumPy's types, which are found by the name of their module.
default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    Tensor: _collate_tensors,
    float: _collate_floats,
    int: _collate_ints,
    str: _as_they_are,
    bytes: _as_they_are,
}


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


def rebuilt(data: Any, change: Callable[[Any], Any]) -> Any:
    """A mapping, named tuple or sequence with ``change`` done to what is in it, of its class where that can be built;
    a tuple as a list. Anything else as it is."""
    if isinstance(data, Mapping):
        return _mapping_like(data, {key: change(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(change, data))
    return _sequence_like(data, [change(value) for value in data]) if isinstance(data, Sequence) else data


def _mapping_like(like: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
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


def _sequence_like(like: Sequence[Any], items: list[Any]) -> Any:
    if isinstance(like, tuple) or type(like) is list:
        return items
    try:
        if isinstance(like, MutableSequence):
            clone = copy.copy(like)
            for k, item in enumerate(items):
                clone[k] = item
            return clone
        return type(like)(items)  # type: ignore[call-arg]
    except TypeError:  # an array of bytes holds no tensors
        return items
