"""Sizes that may vary: how they are named, and what the sizes of inputs are to be."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from tesserack import Tensor
from tesserack.fx.export._errors import ShapesError
from tesserack.utils._pytree import SUPPORTED_NODES, tree_flatten

__all__ = ["AdditionalInputs", "Axis", "Dim", "ShapesCollection", "bind", "combined", "dims"]


class _HintKind(Enum):
    AUTO = auto()
    STATIC = auto()
    DYNAMIC = auto()


@dataclass(frozen=True)
class _DimHint:
    """What is to become of a size without a name."""

    type: _HintKind
    min: int | None = None
    max: int | None = None

    def __call__(self, min: int | None = None, max: int | None = None) -> _DimHint:
        """The hint with a range."""
        if self.type is _HintKind.STATIC:
            raise TypeError("Dim.STATIC: it has no range")
        if (min or 0) < 0 or (max is not None and max < (min or 0)):
            raise AssertionError(f"Dim.{self.type.name}: expected 0 <= min <= max, got {min} and {max}")
        return _DimHint(self.type, min, max)

    def __repr__(self) -> str:
        return f"DimHint({self.type.name})"


class Dim:
    """A size that may vary, by name, within a range: where it stands twice, both sizes are the same.

    ``Dim.AUTO`` lets a size vary as far as the program does the same, in the range to which its branches keep it, or
    not at all; ``Dim.DYNAMIC`` wants it to, ``Dim.STATIC`` keeps it.
    Sizes may follow from another, as ``2 * batch`` and ``batch + 1``.

    >>> batch = Dim("batch", min=2, max=32)
    >>> batch, 2 * batch + 1
    (Dim('batch', min=2, max=32), Dim('2*batch + 1', min=5, max=65))
    """

    AUTO = _DimHint(_HintKind.AUTO)
    DYNAMIC = _DimHint(_HintKind.DYNAMIC)
    STATIC = _DimHint(_HintKind.STATIC)

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not name.isidentifier():
            raise AssertionError(f"Dim: Dim name must be a valid identifier, got {name}")
        if (min or 0) < 0 or (max is not None and max < (min or 0)):
            raise AssertionError(
                f"Dim: expected 0 <= min <= max, Cannot create Dim with inconsistent min={min}, max={max}"
            )
        self.__name__, self.min, self.max = name, min, max
        self.root, self.factor, self.offset = self, 1, 0

    def _derived(self, factor: int, offset: int) -> Dim:
        made = object.__new__(Dim)
        made.root, made.factor, made.offset = self.root, factor, offset
        scaled = self.root.__name__ if factor == 1 else f"{factor}*{self.root.__name__}"
        made.__name__ = scaled if not offset else f"{scaled} {'+' if offset > 0 else '-'} {abs(offset)}"
        made.min = None if self.root.min is None else factor * self.root.min + offset
        made.max = None if self.root.max is None else factor * self.root.max + offset
        return made

    def value(self, root: int) -> int:
        """This size where the one that it follows from is ``root``."""
        return self.factor * root + self.offset

    def __add__(self, other: Any) -> Dim:
        return self._derived(self.factor, self.offset + _whole("add", other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Dim:
        return self._derived(self.factor, self.offset - _whole("subtract", other))

    def __mul__(self, other: Any) -> Dim:
        factor = _whole("multiply", other)
        if factor <= 0:
            raise NotImplementedError(f"Dim: expected a positive factor, got {factor}")
        return self._derived(self.factor * factor, self.offset * factor)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        given = "".join(f", {k}={v}" for k, v in (("min", self.min), ("max", self.max)) if v is not None)
        return f"Dim({self.__name__!r}{given})"


def _whole(what: str, other: Any) -> int:
    if isinstance(other, bool) or not isinstance(other, int):
        raise NotImplementedError(f"Attempted to {what} {other!r} to a Dim, where an integer was expected. (Only "
                                  "increasing linear operations with integer coefficients are supported.)")  # fmt: skip
    return other


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """A :class:`Dim` for each name, all with one range."""
    return tuple(Dim(name, min=min, max=max) for name in names)


# --- which sizes of which inputs ------------------------------------------------------------------------------------


@dataclass
class Axis:
    """A size of an input that is not simply what it is: ``leaf`` counts the inputs' leaves, ``name`` is for errors."""

    leaf: int
    dim: int
    spec: Any
    name: str


def combined(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the names of their parameters, those by position first; extra ones under ``*args``'s name."""
    try:
        signature = inspect.signature(f)
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise TypeError(f"export: the arguments do not fit the program: {error}") from None
    found = {name: value for name, value in bound.items() if name not in kwargs}
    found = {k: v for k, v in found.items() if signature.parameters[k].kind is not inspect.Parameter.VAR_KEYWORD}
    return found | kwargs


def bind(inputs: dict[str, Any], shapes: Any) -> Iterator[Axis]:
    """The sizes that ``dynamic_shapes`` speaks of. ``ValueError`` where it does not have the inputs' structure."""
    if shapes is None:
        return
    if isinstance(shapes, (tuple, list)):
        if len(shapes) != len(inputs):
            raise ShapesError(
                f"dynamic_shapes: expected one entry for each of the {len(inputs)} inputs {[*inputs]}, got "
                f"{len(shapes)}"
            )
        shapes = dict(zip(inputs, shapes, strict=True))
    if not isinstance(shapes, dict):
        raise ShapesError(f"dynamic_shapes: expected a dict, tuple or list, got {type(shapes).__name__}")
    unknown = [name for name in shapes if name not in inputs]
    if unknown or len(shapes) != len(inputs):
        raise ShapesError(
            f"dynamic_shapes: When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names "
            f"{[*inputs]} of `inputs`, but here they are {[*shapes]}"
        )
    count = [0]
    for name, value in inputs.items():
        yield from _walk(value, shapes[name], name, count)


def _walk(value: Any, spec: Any, name: str, count: list[int]) -> Iterator[Axis]:
    if isinstance(value, Tensor):
        leaf, count[0] = count[0], count[0] + 1
        yield from _sizes(value, spec, name, leaf)
        return
    node = SUPPORTED_NODES.get(type(value))
    if node is None and not (isinstance(value, tuple) and hasattr(value, "_fields")):
        count[0] += 1
        if spec is not None:
            raise ShapesError(
                f"dynamic_shapes: expected None for {name}, which is no tensor but {value!r}, got {spec!r}"
            )
        return
    if spec is None:
        count[0] += len(tree_flatten(value)[0])
        return
    if isinstance(value, dict):
        if not isinstance(spec, dict) or {*spec} != {*value}:
            raise ShapesError(f"dynamic_shapes: expected a dict with the keys {[*value]} for {name}, got {spec!r}")
        for key, item in value.items():
            yield from _walk(item, spec[key], f"{name}[{key!r}]", count)
        return
    children = list(value) if isinstance(value, (tuple, list)) or node is None else list(node.flatten_fn(value)[0])
    parts = spec if isinstance(spec, (tuple, list)) or node is None else list(node.flatten_fn(spec)[0])
    if len(parts) != len(children):
        raise ShapesError(f"dynamic_shapes: expected {len(children)} entries for {name}, got {spec!r}")
    for place, (item, part) in enumerate(zip(children, parts, strict=True)):
        yield from _walk(item, part, f"{name}[{place}]", count)


def _sizes(value: Tensor, spec: Any, name: str, leaf: int) -> Iterator[Axis]:
    """The dims of one tensor: a dict by number, or a row."""
    if spec is None:
        return
    if isinstance(spec, dict):
        given = [*spec.items()]
    elif isinstance(spec, (tuple, list)):
        if len(spec) != value.ndim:
            raise ShapesError(
                f"dynamic_shapes: Expected dynamic shape spec {spec!r} for {name} to have the same length as the "
                f"actual tensor shape {tuple(value.shape)}"
            )
        given = [*enumerate(spec)]
    else:
        raise ShapesError(f"dynamic_shapes: expected a dict of dims or a row of them for {name}, got {spec!r}")
    for dim, wanted in given:
        if not isinstance(dim, int) or not -value.ndim <= dim < value.ndim:
            raise ShapesError(f"dynamic_shapes: expected dims of a tensor of {value.ndim} for {name}, got {dim!r}")
        dim %= value.ndim
        if wanted is None or (isinstance(wanted, _DimHint) and wanted.type is _HintKind.STATIC):
            continue
        if isinstance(wanted, int):
            if wanted != value.shape[dim]:
                raise ShapesError(f"dynamic_shapes: {name} has size {value.shape[dim]} in dim {dim}, not {wanted}")
            continue
        if not isinstance(wanted, (Dim, _DimHint)):
            raise ShapesError(f"dynamic_shapes: expected Dims, hints as Dim.AUTO or None in {name}, got {wanted!r}")
        yield Axis(leaf, dim, wanted, name)


class ShapesCollection:
    """Shapes by the tensors that have them, for inputs that are deeply nested.

    >>> import tesserack as ts
    >>> x = ts.ones(2, 3)
    >>> shapes = ShapesCollection()
    >>> shapes[x] = {0: Dim.AUTO}
    >>> shapes.dynamic_shapes(lambda pair: pair[0], ([x, x],))
    {'pair': [{0: DimHint(AUTO)}, {0: DimHint(AUTO)}]}
    """

    def __init__(self) -> None:
        self._shapes: dict[int, tuple[Any, Any]] = {}

    def __setitem__(self, t: Any, shape: Any) -> None:
        if not isinstance(t, Tensor):
            raise AssertionError(f"ShapesCollection: expected a tensor as key, got {type(t).__name__}")
        if id(t) in self._shapes and self._shapes[id(t)][1] != shape:
            raise AssertionError(f"ShapesCollection: shapes assigned to the tensor do not agree: "
                                 f"{self._shapes[id(t)][1]} and {shape}")  # fmt: skip
        self._shapes[id(t)] = t, shape

    def __getitem__(self, t: Any) -> Any:
        return self._shapes.setdefault(id(t), (t, {}))[1]

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(self, m: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        """The argument ``dynamic_shapes`` of :func:`export` for these inputs. ``ValueError`` for tensors not there."""
        found: set[int] = set()

        def take(value: Any) -> Any:
            if isinstance(value, Tensor) and id(value) in self._shapes:
                found.add(id(value))
                return self._shapes[id(value)][1]
            if isinstance(value, dict):
                return {key: take(item) for key, item in value.items()}
            if isinstance(value, (tuple, list)):
                return [take(item) for item in value] if isinstance(value, list) else tuple(map(take, value))
            node = SUPPORTED_NODES.get(type(value))  # of a class that the program registers
            return None if node is None else [take(item) for item in node.flatten_fn(value)[0]]

        forward = getattr(m, "forward", m)
        result = {name: take(value) for name, value in combined(forward, args, kwargs or {}).items()}
        if len(found) != len(self._shapes):
            raise ValueError("ShapesCollection: some tensors that were given a shape are not among the inputs")
        return result


class AdditionalInputs:
    """Further inputs that the program is to take: sizes in which they differ vary.

    >>> import tesserack as ts
    >>> more = AdditionalInputs()
    >>> more.add((ts.ones(4, 3),))
    >>> more.dynamic_shapes(lambda x: x, (ts.ones(2, 3),))
    {'x': (DimHint(DYNAMIC), None)}
    """

    def __init__(self) -> None:
        self._examples: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def add(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        """Further inputs, of the same structure."""
        if not isinstance(args, tuple):
            raise AssertionError(f"AdditionalInputs: expected args to be a tuple, got {type(args).__name__}")
        self._examples.append((args, kwargs or {}))

    def dynamic_shapes(self, m: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        """The argument ``dynamic_shapes`` of :func:`export` for these inputs. ``ValueError`` where others differ."""
        forward = getattr(m, "forward", m)
        every = [combined(forward, *given) for given in ((args, kwargs or {}), *self._examples)]
        return {name: _varying([one.get(name) for one in every], name) for name in every[0]}

    def verify(self, ep: Any) -> None:
        """Run the program on all of them."""
        module = ep.module()
        for args, kwargs in self._examples:
            module(*args, **kwargs)


def _varying(values: list[Any], name: str) -> Any:
    first = values[0]
    if isinstance(first, Tensor):
        if any(not isinstance(v, Tensor) or v.ndim != first.ndim for v in values):
            raise ValueError(f"AdditionalInputs: expected tensors of one number of dims for {name}")
        sizes = zip(*(v.shape for v in values), strict=True)
        found = tuple(Dim.DYNAMIC if len({*column}) > 1 else None for column in sizes)
        return found if any(found) else None
    if isinstance(first, dict):
        return {key: _varying([v[key] for v in values], f"{name}[{key!r}]") for key in first}
    if isinstance(first, (tuple, list)):
        return type(first)(_varying([v[k] for v in values], f"{name}[{k}]") for k in range(len(first)))
    if any(v != first for v in values):
        raise ValueError(f"AdditionalInputs: expected {name} to be the same in all, got {values}")
    return None
