"""Types of tensors by their sizes, for graphs that are typed step by step."""

from __future__ import annotations

from typing import Any

__all__ = ["Dyn", "TensorType", "is_consistent", "is_more_precise"]


class TensorType:
    """A tensor of these sizes; one that is not known is :data:`Dyn`.

    >>> TensorType((1, Dyn, 3)), TensorType[1, 2] == TensorType((1, 2))
    (TensorType[(1, Dyn, 3)], True)
    """

    def __init__(self, dim: Any) -> None:
        self.__origin__ = TensorType
        self.__args__ = dim

    def __repr__(self) -> str:
        return f"TensorType[{self.__args__}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and list(self.__args__) == list(other.__args__)

    __hash__ = None  # type: ignore[assignment]

    def __class_getitem__(cls, sizes: Any) -> TensorType:
        return cls(sizes if isinstance(sizes, tuple) else (sizes,))


class _DynType:
    """Any type: nothing is known."""

    _unknown_type = True  # as unknowns of unification have it
    __name__ = "_DynType"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DynType)

    def __hash__(self) -> int:
        return hash(_DynType)

    def __repr__(self) -> str:
        return "Dyn"


Dyn = _DynType()


def _unknown(kind: Any) -> bool:
    return bool(getattr(type(kind), "_unknown_type", False))


def is_consistent(t1: Any, t2: Any) -> bool:
    """Whether both may be types of one value: where either is not known, they may."""
    if t1 == t2 or _unknown(t1) or _unknown(t2):
        return True
    if isinstance(t1, TensorType) and isinstance(t2, TensorType):
        sizes = len(t1.__args__) == len(t2.__args__)
        return sizes and all(is_consistent(a, b) for a, b in zip(t1.__args__, t2.__args__, strict=True))
    return False


def is_more_precise(t1: Any, t2: Any) -> bool:
    """Whether all that ``t2`` tells is told by ``t1`` as well.

    >>> is_more_precise(TensorType((1, 2)), TensorType((1, Dyn))), is_more_precise(Dyn, TensorType((1,)))
    (True, False)
    """
    if t1 == t2 or isinstance(t2, _DynType):
        return True
    if isinstance(t1, TensorType) and isinstance(t2, TensorType):
        sizes = len(t1.__args__) == len(t2.__args__)
        return sizes and all(is_more_precise(a, b) for a, b in zip(t1.__args__, t2.__args__, strict=True))
    return False
