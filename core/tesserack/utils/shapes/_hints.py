"""Annotations as checks of values: shapes, and unions and containers of them."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tesserack._native import dtype
from tesserack.utils.shapes._binding import Binding, ShapeError
from tesserack.utils.shapes._dims import Axis, parse_shape

__all__ = ["Check", "Either", "Plain", "Shape", "check_of"]

Later = list[tuple[Axis, int, str]]


class Check:
    """Holds values against an annotation."""

    def __call__(self, value: Any, binding: Binding, where: str) -> Later:
        raise NotImplementedError

    def shapes(self) -> Iterator[Shape]:
        """The shapes inside it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Shape(Check):
    """``Float[Tensor, "batch dim"]``."""

    text: str
    kind: type | None
    axes: tuple[Axis, ...]
    dtypes: frozenset[str] | None

    def __call__(self, value: Any, binding: Binding, where: str) -> Later:
        if self.kind is not None and not isinstance(value, self.kind):
            if type(value).__module__.startswith("tesserack.fx."):  # stands for a tensor while a graph is recorded
                return []
            raise ShapeError(f"`{binding.function}`: {where} is {self.text}, got {type(value).__name__}")
        if self.dtypes is not None and self.dtypes.isdisjoint({(name := _name(value.dtype)), name.rstrip("_")}):
            shape = list(value.shape)
            raise ShapeError(f"`{binding.function}`: {where} is {self.text}, got {name} of shape {shape}")
        return binding.check(self.axes, value.shape, where)

    def shapes(self) -> Iterator[Shape]:
        yield self


@dataclass(frozen=True)
class Plain(Check):
    """A member of a union that is no shape: a class, or anything at all."""

    kind: type | None

    def __call__(self, value: Any, binding: Binding, where: str) -> Later:
        if self.kind is not None and not isinstance(value, self.kind):
            raise ShapeError(f"`{binding.function}`: {where} is no {self.kind.__name__}")
        return []

    def shapes(self) -> Iterator[Shape]:
        yield from ()


@dataclass(frozen=True)
class Either(Check):
    """``A | B``: the first that fits binds its names."""

    members: tuple[Check, ...]

    def __call__(self, value: Any, binding: Binding, where: str) -> Later:
        errors = []
        for member in self.members:
            kept = dict(binding.sizes), dict(binding.runs), dict(binding.sources)
            try:
                return member(value, binding, where)
            except ShapeError as error:
                binding.sizes, binding.runs, binding.sources = kept
                errors.append((isinstance(member, Shape), error))
        raise max(errors, key=lambda pair: pair[0])[1]

    def shapes(self) -> Iterator[Shape]:
        for member in self.members:
            yield from member.shapes()


@dataclass(frozen=True)
class Parts(Check):
    """``tuple[A, B]``, ``list[A]``, ``dict[K, A]``."""

    kind: type
    members: tuple[Check | None, ...]  # one for every item, unless ``fixed``
    fixed: bool = False

    def __call__(self, value: Any, binding: Binding, where: str) -> Later:
        if not isinstance(value, self.kind):
            raise ShapeError(
                f"`{binding.function}`: {where} is a {self.kind.__name__} of tensors, got {type(value).__name__}"
            )
        held: Any = value
        items = [*held.items()] if isinstance(held, Mapping) else [*enumerate(held)]
        if self.fixed and len(items) != len(self.members):
            raise ShapeError(f"`{binding.function}`: {where} has {len(self.members)} items, got {len(items)}")
        later: Later = []
        for place, (key, item) in enumerate(items):
            member = self.members[place if self.fixed else 0]
            if member is not None:
                inside = f"{where[:-1]}[{key!r}]`" if where.endswith("`") else f"{where}[{key!r}]"
                later += member(item, binding, inside)
        return later

    def shapes(self) -> Iterator[Shape]:
        for member in self.members:
            if member is not None:
                yield from member.shapes()


def _name(kind: Any) -> str:
    return str(kind).rpartition(".")[2] if isinstance(kind, dtype) else str(kind)


def check_of(hint: Any) -> Check | None:
    """What an annotation asks of values, or None if it has no shapes in it."""
    text = getattr(hint, "dim_str", None)
    if isinstance(text, str):
        return _shape(hint, text)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return check_of(arguments[0])
    if origin in (typing.Union, types.UnionType):
        members = [check_of(argument) for argument in arguments]
        if any(members):
            return Either(tuple(m or _plain(a) for m, a in zip(members, arguments, strict=True)))
    elif origin is tuple and arguments:
        open_ended = arguments[-1] is Ellipsis
        parts = tuple(check_of(a) for a in (arguments[:1] if open_ended else arguments))
        return Parts(tuple, parts, not open_ended) if any(parts) else None
    elif isinstance(origin, type) and issubclass(origin, (Sequence, Mapping)) and arguments:
        part = check_of(arguments[-1])
        return Parts(origin, (part,)) if part else None
    return None


def _shape(hint: Any, text: str) -> Shape:
    kind, dtypes = hint.array_type, hint.dtypes
    names = frozenset(map(str, dtypes)) if isinstance(dtypes, (tuple, list, frozenset)) else None
    family = getattr(hint, "family", None) or getattr(hint, "__name__", "Shaped").partition("[")[0]
    shown = f'{family}["{text}"]'
    return Shape(shown, kind if isinstance(kind, type) else _kind_of(kind), parse_shape(text), names)


def _kind_of(kind: Any) -> type | None:
    """A type variable's bound; anything else is not asked about."""
    bound = getattr(kind, "__bound__", None)
    return bound if isinstance(bound, type) else None


def _plain(hint: Any) -> Plain:
    origin = typing.get_origin(hint) or hint
    if origin is None:
        origin = type(None)
    return Plain(origin if isinstance(origin, type) else None)
