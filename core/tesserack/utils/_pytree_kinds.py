"""What trees are made of: tuples that are more, and the places of children."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = [
    "GetAttrKey",
    "KeyEntry",
    "KeyPath",
    "MappingKey",
    "SequenceKey",
    "is_namedtuple",
    "is_namedtuple_class",
    "is_namedtuple_instance",
    "is_structseq",
    "is_structseq_class",
    "is_structseq_instance",
    "key_get",
    "keystr",
]

_SUBCLASSES = 1 << 10  # Py_TPFLAGS_BASETYPE


def is_namedtuple_class(cls: Any) -> bool:
    """Whether it is a class of Python's ``namedtuple``, or a subclass of one."""
    fields = getattr(cls, "_fields", None)
    return (
        isinstance(cls, type)
        and issubclass(cls, tuple)
        and isinstance(fields, tuple)
        and all(type(field) is str for field in fields)
        and all(callable(getattr(cls, name, None)) for name in ("_make", "_asdict"))
    )


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether it is a named tuple.

    >>> is_namedtuple_instance((1, 2))
    False
    """
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    """Whether it is a named tuple or the class of one."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls: Any) -> bool:
    """Whether it is a class of C's tuples with names, as ``time.struct_time`` and results of several tensors."""
    counts = ("n_fields", "n_sequence_fields", "n_unnamed_fields")
    return (
        isinstance(cls, type)
        and cls.__bases__ == (tuple,)
        and all(isinstance(getattr(cls, name, None), int) for name in counts)
        and not cls.__flags__ & _SUBCLASSES
    )


def is_structseq_instance(obj: Any) -> bool:
    """Whether it is one of C's tuples with names."""
    return is_structseq_class(type(obj))


def is_structseq(obj: Any) -> bool:
    """Whether it is one of C's tuples with names, or the class of one."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


class KeyEntry(Protocol):
    """The place of a child: one of the classes below, or a user's."""

    def get(self, parent: Any, /) -> Any:
        """The child."""


KeyPath = tuple[KeyEntry, ...]


@dataclass(frozen=True)
class MappingKey:
    """The place of a child in a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The child."""
        return mapping[self.key]


@dataclass(frozen=True)
class SequenceKey:
    """The place of a child in a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The child."""
        return sequence[self.idx]


@dataclass(frozen=True)
class GetAttrKey:
    """The place of a child in a named tuple or dataclass."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The child."""
        return getattr(obj, self.name)


def keystr(kp: Iterable[Any]) -> str:
    """A path as Python spells it.

    >>> keystr((MappingKey("a"), SequenceKey(0)))
    "['a'][0]"
    """
    return "".join(str(key) for key in kp)


def key_get(obj: Any, kp: Iterable[KeyEntry]) -> Any:
    """The value at a path.

    >>> key_get({"a": [1, 2]}, (MappingKey("a"), SequenceKey(1)))
    2
    """
    for key in kp:
        obj = key.get(obj)
    return obj
