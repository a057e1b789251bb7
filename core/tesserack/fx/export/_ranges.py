"""What an exported program's inputs may be: checked at every call, told by the names of inputs and dims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tesserack import Tensor
from tesserack.fx.export._errors import InputError
from tesserack.utils._pytree import TreeSpec, tree_flatten

__all__ = ["InputCheck", "Symbol", "ValueRanges", "flat_inputs"]


@dataclass(frozen=True)
class ValueRanges:
    """The least and the greatest value, None where there is no bound."""

    lower: int
    upper: int | None

    def __str__(self) -> str:
        return f"VR[{self.lower}, {'int_oo' if self.upper is None else self.upper}]"

    __repr__ = __str__

    def __contains__(self, value: int) -> bool:
        return self.lower <= value and (self.upper is None or value <= self.upper)


@dataclass
class Symbol:
    """A size that varies by itself, and where it shows: ``(leaf, dim, factor, offset)`` for each input's size."""

    name: str
    range: ValueRanges
    places: list[tuple[int, int, int, int]]
    example: int
    hint: bool = False  # without a name of the program's, which may find that it does not vary
    auto: bool = False
    declared: bool = False  # whether the program says what the least is
    reasons: tuple[str, str] = ("", "")  # why the range ends where it does, if the program did not say so


@dataclass
class InputCheck:
    """The inputs of the example, as outlines: ``(shape, dtype, device type)`` or a constant."""

    in_spec: TreeSpec
    names: list[str]
    leaves: list[Any]
    symbols: list[Symbol] = field(default_factory=list)
    # Sizes that were to vary as far as they can, by leaf and dim: what fixes them.
    fixed: dict[tuple[int, int], str] = field(default_factory=dict)

    def __call__(self, leaves: Sequence[Any]) -> dict[str, int]:
        """The sizes that vary, by name. ``InputError`` for inputs that the program was not made for."""
        varying = {(leaf, dim): symbol for symbol in self.symbols for leaf, dim, _, _ in symbol.places}
        for place, (name, expected, found) in enumerate(zip(self.names, self.leaves, leaves, strict=True)):
            self._leaf(place, name, expected, found, varying)
        return {symbol.name: self._size(symbol, leaves) for symbol in self.symbols}

    def _leaf(self, place: int, name: str, expected: Any, found: Any, varying: Any) -> None:
        if not isinstance(expected, tuple):
            if isinstance(found, Tensor) or type(found) is not type(expected) or found != expected:
                raise InputError(f"{name}: expected {expected!r}, as in the example, got {_short(found)}")
            return
        shape, dtype, _ = expected
        if not isinstance(found, Tensor):
            raise InputError(f"{name}: expected a tensor of {dtype} and shape {shape}, got {_short(found)}")
        if found.dtype is not dtype:
            raise InputError(f"{name}: expected a tensor of {dtype}, got {found.dtype}; use .to({dtype})")
        if found.ndim != len(shape):
            raise InputError(f"{name}: expected {len(shape)} dims, got shape {tuple(found.shape)}")
        for dim, size in enumerate(shape):
            if (place, dim) not in varying and found.shape[dim] != size:
                why = self.fixed.get((place, dim))
                more = f"the size is fixed by {why}" if why else "export with dynamic_shapes to let it vary"
                raise InputError(f"{name}: expected size {size} in dim {dim}, got {found.shape[dim]}; {more}")

    def _size(self, symbol: Symbol, leaves: Sequence[Any]) -> int:
        first: tuple[int, str] | None = None
        for leaf, dim, factor, offset in symbol.places:
            size = int(leaves[leaf].shape[dim])
            value, rest = divmod(size - offset, factor)
            where = f"{self.names[leaf]} in dim {dim}"
            if rest:
                raise InputError(f"{_scaled(symbol.name, factor, offset)}: got {size} for {where}")
            if value not in symbol.range:
                upper = symbol.range.upper
                bounds = f"{symbol.range.lower}..{upper}" if upper is not None else f"at least {symbol.range.lower}"
                why = symbol.reasons[value > symbol.range.lower]
                more = f"; the range is that of {why}" if why else ""
                raise InputError(f"{symbol.name}: expected {bounds}, got {value}, the size of {where}{more}")
            if first is not None and first[0] != value:
                raise InputError(
                    f"{symbol.name}: expected one size, got {first[0]}, by {first[1]}, and {value}, by {where}"
                )
            first = first or (value, where)
        assert first is not None
        return first[0]


def _scaled(name: str, factor: int, offset: int) -> str:
    return f"expected a size of the form {factor}*{name}{f' + {offset}' if offset else ''}"


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype} and shape {tuple(value.shape)}"
    return repr(value)


def _as_before(value: Any, spec: TreeSpec) -> Any:
    """The same, dicts with their keys in the example's order."""
    children = spec.children_specs
    if type(value) is not spec.type or len(children) != len(value if hasattr(value, "__len__") else ()):
        return value
    if type(value) is tuple or type(value) is list:
        items = [_as_before(item, child) for item, child in zip(value, children, strict=True)]
        return items if type(value) is list else tuple(items)
    if type(value) is dict and {*value} == {*spec.context}:
        return {key: _as_before(value[key], child) for key, child in zip(spec.context, children, strict=True)}
    return value


def flat_inputs(spec: TreeSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The leaves of a call's arguments. ``InputError`` if they do not have the example's structure."""
    expected = spec.children_specs[1]
    order = list(expected.context or ())
    if {*order} == {*kwargs}:
        kwargs = {name: kwargs[name] for name in order}
    leaves, found = tree_flatten(_as_before((args, kwargs), spec))
    if found != spec:
        raise InputError(f"expected arguments of the example's structure, {_first_difference(spec, found)}")
    return leaves


def _kind(spec: TreeSpec) -> str:
    if spec.type is None:
        return "a value"
    inside = f"keys {[*spec.context]}" if spec.type is dict else f"{len(spec.children_specs)} values"
    return f"a {spec.type.__name__} of {inside}"


def _first_difference(spec: TreeSpec, found: TreeSpec) -> str:
    """Where a call's arguments are put together otherwise than the example's, what was there and what is."""
    (positional, keywords), (others, other_keywords) = spec.children_specs, found.children_specs
    if len(positional.children_specs) != len(others.children_specs):
        return f"{len(positional.children_specs)} by position, got {len(others.children_specs)}"
    names, other_names = [*(keywords.context or ())], [*(other_keywords.context or ())]
    if {*names} != {*other_names}:
        return f"keywords {names}, got {other_names}"
    first = [f"argument {k}" for k in range(len(positional.children_specs))]
    pairs = zip(
        [*first, *(f"{name}=" for name in names)],
        [*positional.children_specs, *keywords.children_specs],
        [*others.children_specs, *other_keywords.children_specs],
        strict=True,
    )
    return next(_apart(path, a, b) for path, a, b in pairs if a != b)


def _apart(path: str, spec: TreeSpec, found: TreeSpec) -> str:
    same = spec.type is found.type and spec.context == found.context
    if not same or len(spec.children_specs) != len(found.children_specs):
        return f"{path} {_kind(spec)}, got {_kind(found)}"
    keys = spec.context if spec.type is dict else range(len(spec.children_specs))
    pairs = zip(keys, spec.children_specs, found.children_specs, strict=True)
    return next(_apart(f"{path}[{key!r}]", a, b) for key, a, b in pairs if a != b)
