"""Nested state dicts as flat ones, and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from tesserack import Tensor

__all__ = ["Path", "Position", "flatten_state_dict", "get_element", "set_element", "unflatten_state_dict"]

Path = tuple[Any, ...]


class Position(int):
    """A place in a list, where a plain number is a key of a dict."""


def _has_tensors(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_tensors, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_tensors, value))
    return isinstance(value, Tensor)


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _leaves(each, (*path, key))
    elif isinstance(value, (list, tuple)) and _has_tensors(value):
        for number, each in enumerate(value):
            yield from _leaves(each, (*path, Position(number)))
    else:
        yield path, value


def flatten_state_dict(state_dict: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Path]]:
    """The leaves by dotted names, and the path of each: dicts are gone into, and lists that have tensors in them.
    ``ValueError`` where two have one name.

    >>> flatten_state_dict({"a": {"b": 1}, "c": [1, 2]})
    ({'a.b': 1, 'c': [1, 2]}, {'a.b': ('a', 'b'), 'c': ('c',)})
    """
    flat: dict[str, Any] = {}
    paths: dict[str, Path] = {}
    for path, value in _leaves(state_dict, ()):
        if not path:
            continue
        name = ".".join(map(str, path))
        if name in flat:
            raise ValueError(f"duplicated flatten key {name}")
        flat[name], paths[name] = value, path
    return flat, paths


def get_element(root: Any, path: Path, default: Any = None) -> Any:
    """What stands at a path."""
    for key in path:
        try:
            root = root[key]
        except (KeyError, IndexError, TypeError):
            return default
    return root


def set_element(root: Any, path: Path, value: Any) -> None:
    """Put something at a path, making dicts and lists on the way."""
    for key, following in itertools.pairwise(path):
        _make_room(root, key)
        absent = root[key] is None if isinstance(root, list) else key not in root
        if absent:
            root[key] = [] if isinstance(following, Position) else {}
        root = root[key]
    _make_room(root, path[-1])
    root[path[-1]] = value


def _make_room(root: Any, key: Any) -> None:
    if isinstance(root, list):
        root.extend([None] * (key + 1 - len(root)))


def unflatten_state_dict(flat: Mapping[str, Any], paths: Mapping[str, Path]) -> dict[str, Any]:
    """The reverse of :func:`flatten_state_dict`."""
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        set_element(nested, paths[name], value)
    return nested
