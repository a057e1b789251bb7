"""Questions about sizes under PyTorch's names: sizes are numbers here, and answer for themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = [
    "ConstraintViolationError", "DimDynamic", "GuardOnDataDependentSymNode", "RelaxedUnspecConstraint", "ShapeEnv",
    "StatelessSymbolicContext", "StrictMinMaxConstraint", "SymbolicContext", "constrain_range", "constrain_unify",
    "definitely_false", "definitely_true", "expect_true", "free_symbols", "free_unbacked_symbols",
    "fx_placeholder_targets", "fx_placeholder_vals", "guard_bool", "guard_float", "guard_int", "guard_or_false",
    "guard_or_true", "guard_scalar", "guard_size_oblivious", "has_free_symbols", "has_hint", "has_static_value",
    "has_symbolic_sizes_strides", "hint_int", "is_accessor_node", "is_concrete_bool", "is_concrete_float",
    "is_concrete_int", "is_symbolic", "statically_known_false", "statically_known_true", "sym_and", "sym_eq", "sym_or",
]  # fmt: skip


class DimDynamic(Enum):
    """How a size may vary."""

    DYNAMIC = 0
    DUCK = 1
    STATIC = 2
    SIZE_LIKE_UNBACKED = 3
    INFER_STRIDE = 4
    OBLIVIOUS_SIZE = 5


class GuardOnDataDependentSymNode(RuntimeError):
    """A branch depends on a size that is not known; nothing here raises it."""


def is_symbolic(val: Any) -> bool:
    """False: sizes are numbers."""
    return False


has_symbolic_sizes_strides = has_free_symbols = is_symbolic


def free_symbols(val: Any) -> set[Any]:
    """None."""
    return set()


free_unbacked_symbols = free_symbols


def has_hint(a: Any) -> bool:
    """True: a number is known."""
    return True


has_static_value = has_hint


def is_concrete_int(a: Any) -> bool:
    """Whether it is a number: True. ``AssertionError`` for another kind of value."""
    assert isinstance(a, int), f"expected an int, got {type(a).__name__}"
    return True


def is_concrete_bool(a: Any) -> bool:
    """True. ``AssertionError`` for what is no bool."""
    assert isinstance(a, bool), f"expected a bool, got {type(a).__name__}"
    return True


def is_concrete_float(a: Any) -> bool:
    """True. ``AssertionError`` for what is no float."""
    assert isinstance(a, float), f"expected a float, got {type(a).__name__}"
    return True


def guard_scalar(a: Any) -> Any:
    """The number itself."""
    return a


def guard_int(a: Any) -> int:
    """The number itself."""
    return int(a)


def hint_int(a: Any, fallback: int | None = None) -> int:
    """The number itself."""
    return int(a)


def guard_float(a: Any) -> float:
    """The number itself."""
    return float(a)


def guard_bool(a: Any) -> bool:
    """The truth of it."""
    return bool(a)


guard_size_oblivious = guard_or_false = guard_or_true = statically_known_true = definitely_true = expect_true = (
    guard_bool
)


def statically_known_false(a: Any) -> bool:
    """Whether it is false."""
    return not a


definitely_false = statically_known_false


def sym_and(*values: Any) -> bool:
    """Whether all hold."""
    return all(values)


def sym_or(*values: Any) -> bool:
    """Whether one holds."""
    return any(values)


def sym_eq(x: Any, y: Any) -> bool:
    """Whether numbers, or nested sizes, are equal."""
    if isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)):
        return len(x) == len(y) and all(map(sym_eq, x, y))
    return bool(x == y)


def constrain_range(a: Any, *, min: int | None, max: int | None = None) -> None:
    """``ValueError`` for a number out of a range.

    >>> constrain_range(3, min=2, max=4)
    """
    if (min is not None and a < min) or (max is not None and a > max):
        raise ValueError(f"Invalid value {a} for range [{min}:{max}]")


def is_accessor_node(node: Any) -> bool:
    """Whether a node of a graph reads a size, a stride or the offset of a tensor."""
    names: Iterable[str] = ("sym_size", "sym_stride", "sym_storage_offset", "sym_numel", "size", "stride")
    target = str(getattr(node.target, "__name__", node.target)).partition(".")[0]
    return node.op in ("call_function", "call_method") and target in (*names, "storage_offset", "item")


class ConstraintViolationError(RuntimeError):
    """A size is not what is said of it."""


@dataclass(frozen=True)
class StrictMinMaxConstraint:
    """What a size may be, ``vr``; it is an error if it turns out not to vary."""

    vr: Any
    warn_only: bool = False


@dataclass(frozen=True)
class RelaxedUnspecConstraint:
    """That a size may vary."""

    warn_only: bool = False


@dataclass(frozen=True)
class SymbolicContext:
    """What is said of a tensor's sizes."""


@dataclass(frozen=True)
class StatelessSymbolicContext(SymbolicContext):
    """How each size of a tensor may vary, and within which bounds; what is not said is None."""

    dynamic_sizes: Sequence[DimDynamic]
    dynamic_strides: Sequence[DimDynamic] | None = None
    constraint_sizes: Sequence[Any] | None = None
    constraint_strides: Sequence[Any] | None = None


class ShapeEnv:
    """What is known of the sizes of a trace, as ``FakeTensorMode(shape_env=ShapeEnv())`` is given it. Sizes are numbers
    while a program is traced, so that there are no symbols and nothing to guard.

    >>> ShapeEnv().guards, ShapeEnv().evaluate_guards_for_args([], [])
    ([], True)
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.guards: list[Any] = []
        self.var_to_val: dict[Any, Any] = {}
        self.var_to_range: dict[Any, Any] = {}
        self.replacements: dict[Any, Any] = {}
        self.frozen = False

    def freeze(self) -> None:
        """Say that no guard comes to it any more."""
        self.frozen = True

    def produce_guards(self, placeholders: Any, sources: Any = (), **options: Any) -> list[str]:
        """None."""
        return []

    def evaluate_guards_for_args(self, placeholders: Any, args: Any, **options: Any) -> bool:
        """True: there are none."""
        return True

    def format_guards(self, verbose: bool = False) -> str:
        """The guards as text: none."""
        return ""

    @contextlib.contextmanager
    def ignore_fresh_unbacked_symbols(self) -> Iterator[None]:
        """A context that changes nothing."""
        yield


def constrain_unify(a: Any, b: Any) -> None:
    """``ConstraintViolationError`` unless both sizes are the same."""
    if a != b:
        raise ConstraintViolationError(f"constrain_unify: expected equal sizes, got {a} and {b}")


def _placeholders(gm: Any) -> list[Any]:
    return [node for node in gm.graph.nodes if node.op == "placeholder"]


def fx_placeholder_vals(gm: Any) -> list[Any]:
    """What is noted of the values of a graph's arguments."""
    return [node.meta["val"] for node in _placeholders(gm)]


def fx_placeholder_targets(gm: Any) -> list[str]:
    """The names of a graph's arguments."""
    return [node.target for node in _placeholders(gm)]
