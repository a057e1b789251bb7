"""Looking at objects of the program without running Python of theirs: what asks them for an attribute, or goes through
them, may be seen, or fail.
"""

from __future__ import annotations

import sys
import types
from collections import OrderedDict
from typing import Any

__all__ = ["ABSENT", "ANSWERED", "asked", "is_a", "items_of", "length_of", "own_dict", "pairs_of"]

_PLAIN = frozenset((list, tuple, set, frozenset, dict, OrderedDict))
_KINDS = (list, tuple, set, frozenset)
_NAMES: Any = vars(types.ModuleType)["__dict__"]  # which classes of modules may hide


class ABSENT:
    """What stands for a name that is not there."""


class ANSWERED:
    """What stands for an attribute that only Python of the program could tell."""


def is_a(value: Any, kinds: type | tuple[type, ...]) -> bool:
    """``isinstance``, of what an object is and not of what it says."""
    return issubclass(type(value), kinds)


def own_dict(value: Any) -> dict[str, Any] | None:
    """An object's attributes."""
    try:
        found: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found


def items_of(value: Any) -> list[Any]:
    """What a list, tuple or set holds."""
    if type(value) in _PLAIN:
        return [*value]
    base: Any = next(kind for kind in _KINDS if issubclass(type(value), kind))
    return [*base.__iter__(value)]


def pairs_of(value: Any) -> list[tuple[Any, Any]]:
    """What a dict holds."""
    if type(value) is dict:
        return list(value.items())
    return list(OrderedDict.items(value) if issubclass(type(value), OrderedDict) else dict.items(value))


def length_of(value: Any) -> int:
    """How many items there are: a subclass may refuse to tell its own."""
    if type(value) in _PLAIN:
        return len(value)
    base: Any = next(kind for kind in (dict, *_KINDS) if issubclass(type(value), kind))
    return int(base.__len__(value))


def asked(owner: Any, name: str) -> Any:
    """An attribute of a module or class; ``ABSENT``, or ``ANSWERED`` where Python of the program would tell it."""
    told = _told_by_module(owner, name) if is_a(owner, types.ModuleType) else _told_by_class(owner, name)
    if told is not None:
        return told
    try:
        return getattr(owner, name, ABSENT)
    except Exception:  # what is only missed once it is asked for, as by a module that loads late
        return ANSWERED


def _told_by_module(module: types.ModuleType, name: str) -> Any:
    """``ANSWERED``, ``ABSENT``, or None for what may be asked for."""
    own: dict[str, Any] = _NAMES.__get__(module)
    if _is_known(own.get("__name__", "")) or (name in own and type(module) is types.ModuleType):
        return None
    cls = type(module)
    if _is_python(cls, "__getattribute__") or _is_written(_found(cls, name), property):
        return ANSWERED
    if name in own:
        return None
    return ANSWERED if "__getattr__" in own or _is_python(cls, "__getattr__") else None


def _told_by_class(cls: type, name: str) -> Any:
    """As ``_told_by_module``."""
    meta = type(cls)
    if meta is not type and not _is_known(type.__getattribute__(meta, "__module__")):
        if _is_python(meta, "__getattribute__") or _is_written(_found(meta, name), property):
            return ANSWERED
        if _found(cls, name) is ABSENT and _is_python(meta, "__getattr__"):
            return ANSWERED
    return ANSWERED if _is_written(_found(cls, name)) else None


def _found(cls: type, name: str) -> Any:
    for base in type.__getattribute__(cls, "__mro__"):
        if name in (held := type.__getattribute__(base, "__dict__")):
            return held[name]
    return ABSENT


def _is_python(cls: type, name: str) -> bool:
    """Whether a method is a function of Python."""
    return isinstance(_found(cls, name), types.FunctionType)


def _is_written(member: Any, *kinds: type) -> bool:
    """Whether asking for a member of a class runs a function of the program's; of these kinds it does."""
    cls = type(member)
    return cls in kinds or (_is_python(cls, "__get__") and not _is_known(cls.__module__))


def _is_known(name: Any) -> bool:
    """Whether a module is this package's or Python's own."""
    first = str(name).partition(".")[0]
    return first in ("tesserack", "torch") or first in sys.stdlib_module_names
