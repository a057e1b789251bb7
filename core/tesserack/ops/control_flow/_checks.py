"""What the functions of control flow may return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tesserack.ops.control_flow._flat import is_tensor

__all__ = ["check_callable", "check_carry", "check_same", "described", "outline"]


def check_callable(op: str, **functions: Any) -> None:
    """``RuntimeError`` for an argument that cannot be called."""
    for name, function in functions.items():
        if not callable(function):
            raise RuntimeError(f"{op}: expected {name} to be a function, got {function!r}")


def outline(x: Any) -> tuple[Any, ...]:
    """What has to stay the same from step to step, and from branch to branch."""
    return (tuple(x.shape), x.dtype) if is_tensor(x) else (type(x),)


def described(x: Any) -> str:
    """A leaf in words, for errors."""
    return f"{x.dtype} of shape {tuple(x.shape)}" if is_tensor(x) else f"{type(x).__name__} {x!r}"


def check_same(op: str, expected: Sequence[Any], found: Sequence[Any], whose: tuple[str, str]) -> None:
    """``RuntimeError`` unless leaves agree in number, kind, shape and dtype; ``whose`` names both sides."""
    if len(expected) != len(found):
        raise RuntimeError(
            f"{op}: expected as many values from {whose[1]} as from {whose[0]}, {len(expected)}, got {len(found)}"
        )
    for place, (one, other) in enumerate(zip(expected, found, strict=True)):
        if outline(one) != outline(other):
            raise RuntimeError(
                f"{op}: expected value {place} to have the same shape and dtype from {whose[0]} and {whose[1]}, got "
                f"{described(one)} and {described(other)}"
            )


def check_carry(op: str, expected: Sequence[Any], found: Sequence[Any], what: str) -> None:
    """``RuntimeError`` unless what a step hands on is as what it was given."""
    if len(expected) != len(found):
        raise RuntimeError(f"{op}: expected {len(expected)} values from {what}, got {len(found)}")
    for place, (one, other) in enumerate(zip(expected, found, strict=True)):
        if outline(one) != outline(other):
            raise RuntimeError(
                f"{op}: expected {what} to keep the shape and dtype of value {place}, {described(one)}, got "
                f"{described(other)}; a step hands on what the next one is given"
            )
