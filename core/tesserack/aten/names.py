"""Which operator of ATen a call is, and which of its arguments PyTorch would show."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tesserack import Tensor, _native
from tesserack.aten.operators import OpOverload, namespace
from tesserack.aten.schema import FunctionSchema, parse
from tesserack.ops.layers import REDUCTIONS
from tesserack.ops.registry import said

__all__ = ["Shown", "is_leaf", "overload_here", "random_names", "shown"]

# Overloads that have another name there.
_OVERLOADS = {
    "sum.dim": "dim_IntList",
    "slice": "Tensor",
    "empty": "memory_format",
    "unbind": "int",
    "index": "Tensor",
    "split": "Tensor",
    "all.dims": "dim",
    "any.dims": "dim",
    "xlogy": "Tensor",
    "bernoulli_": "float",
    "lerp": "Scalar",
    "div.mode": "Tensor_mode",
    "div_.mode": "Tensor_mode",
}
# The second operand decides: these are of tensors there, numbers or not...
_OF_TENSORS = frozenset(
    f"{base}{suffix}" for base in ("add", "sub", "mul", "div", "subtract", "multiply", "divide", "true_divide")
    for suffix in ("", "_")
)  # fmt: skip
# ... and these have an overload for each.
_BY_OPERAND = frozenset(
    f"{base}{suffix}"
    for base in (
        "eq", "ne", "lt", "le", "gt", "ge", "not_equal", "less", "less_equal", "greater", "greater_equal", "remainder",
        "fmod", "bitwise_and", "bitwise_or", "bitwise_xor", "copysign", "masked_fill", "fill", "rsub",
    )
    for suffix in ("", "_")
)  # fmt: skip
_POWERS = frozenset({"pow", "pow_", "float_power", "float_power_"})


# Calls of transpose_ in ATen.
_RENAMED_THERE = frozenset({"swapaxes_", "swapdims_"})


@functools.cache
def random_names() -> frozenset[str]:
    """Operators that draw random numbers."""
    records: Any = _native._operators()
    return frozenset(record["base"] for record in records if record["effects"]["random"])


def is_leaf(base: str) -> bool:
    """Whether an operator that is made of others here is whole in ATen: its declaration says so, or it is the in-place
    form of one that is whole. A call whose gradient is recorded goes by the parts.
    """
    return base in _leaves()


@functools.cache
def _leaves() -> frozenset[str]:
    records = [r for r in _native._operators() if r["variant"] == "functional"]
    parted = {r["base"] for r in records if r["composite"]} - said("leaf", "leaf:inplace")
    written = {f"{r['base']}_" for r in records if r["base"] not in parted}
    return said("leaf") | (written - _RENAMED_THERE)


def overload_here(name: str) -> str:
    """The operator that serves an overload of ATen, ``"sum.dim"`` for ``"sum.dim_IntList"``. ``RuntimeError`` if none.

    >>> overload_here("sum.dim_IntList"), overload_here("mul.Tensor")
    ('sum.dim', 'mul')
    """
    base, _, overload = name.partition(".")
    records = {record["name"] for record in _native._operators()}
    renamed = (ours for ours, theirs in _OVERLOADS.items() if ours.partition(".")[0] == base and theirs == overload)
    for candidate in (name, *renamed, base):
        if candidate in records:
            return candidate
    raise RuntimeError(f"operator aten::{name} does not exist")


class Shown:
    """How the calls of one operator are shown."""

    def __init__(self, name: str, text: str) -> None:
        base, _, overload = name.partition(".")
        self.base, self.whole = base, name
        self.packet = getattr(namespace("aten"), base) if "::" not in base else getattr(
            namespace(base.split("::")[0]), base.split("::")[1]
        )  # fmt: skip
        self.schema: FunctionSchema = parse(f"aten::{base}", overload, text)
        self._overload = _OVERLOADS.get(name, overload or "default")
        # A number in ATen, where it is the mean by itself.
        named = (
            k for k, a in enumerate(self.schema.arguments) if a.name == "reduction" and a.default_value in REDUCTIONS
        )
        self._reduction = next(named, None)
        self._positional = sum(not argument.kwarg_only for argument in self.schema.arguments)

    def overload(self, args: Sequence[Any]) -> OpOverload:
        """The overload that PyTorch would choose for the arguments."""
        return getattr(self.packet, self._overload_name(args))  # type: ignore[no-any-return]

    def _overload_name(self, args: Sequence[Any]) -> str:
        if self._overload != "default":
            return self._overload
        if self.base in _OF_TENSORS:
            return "Tensor"
        if self.base in _BY_OPERAND:
            second = args[2] if self.base.startswith("masked_fill") else args[1]
            return "Tensor" if isinstance(second, Tensor) else "Scalar"
        if self.base in _POWERS:
            kinds = ["Tensor" if isinstance(x, Tensor) else "Scalar" for x in args[:2]]
            return kinds[1] if self.base.endswith("_") else "Scalar" if kinds[0] == "Scalar" else "_".join(kinds)
        return "default"

    def arguments(self, args: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """By position and by keyword; those that have their defaults are left out, the last ones first."""
        declared = self.schema.arguments
        defaults = [argument.default_value for argument in declared]
        if self._reduction is not None:
            defaults[self._reduction] = REDUCTIONS.index("mean")
            given = args[self._reduction]
            number = REDUCTIONS.index(given) if given in REDUCTIONS else given
            args = [*args[: self._reduction], number, *args[self._reduction + 1 :]]
        count = self._positional
        while count and declared[count - 1].has_default and _same(args[count - 1], defaults[count - 1]):
            count -= 1
        keywords = {
            argument.name: value
            for argument, value in zip(declared[self._positional :], args[self._positional :], strict=True)
            if not (argument.has_default and _same(value, argument.default_value))
        }
        return tuple(args[:count]), keywords


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, list):  # a number for all dims, or none where there is a list
        return value == default or (not value and default is None) or (bool(value) and all(v == default for v in value))
    return value is default or (type(value) is type(default) and not isinstance(value, Tensor) and value == default)


@functools.cache
def shown(name: str, text: str) -> Shown:
    """How calls of the operator of that name and schema are shown."""
    return Shown(name, text)
