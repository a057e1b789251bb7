"""A case makes a function of a tensor, and a change that may come between two of its calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Case(NamedTuple):
    function: Callable[..., Any]
    change: Callable[[], Any]
    undo: Callable[[], Any] = lambda: None
    captured: bool = True
    only_default: bool = False  # no graph for a backend, though there is one else


CASES: dict[str, Callable[[], Case]] = {}


def case(make):
    CASES[make.__name__] = make
    return make


def put(owner, name, value):
    """A change of an attribute, and how it is undone."""
    before = getattr(owner, name)
    return lambda: setattr(owner, name, value), lambda: setattr(owner, name, before)


def attribute_of(owner, name, value, function, **options):
    change, undo = put(owner, name, value)
    return Case(function, change, undo, **options)


def item_of(container, key, value, function, **options):
    return Case(function, lambda: container.__setitem__(key, value), **options)
