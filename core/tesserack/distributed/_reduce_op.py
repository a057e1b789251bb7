"""What elements of several ranks become one by."""

from __future__ import annotations

import enum
from typing import Any

__all__ = ["RedOpType", "ReduceOp", "reduce_op"]


class RedOpType(enum.Enum):
    """The reductions, with the numbers that the native communicator knows them by."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8
    UNUSED = 9


Kind = RedOpType  # also where a class shows the name as an attribute


class _Named(type):
    """``ReduceOp.SUM`` and its like, made when they are asked for: a ``ReduceOp`` each, equal to others of its kind."""

    def __getattr__(cls, name: str) -> Any:
        if name in RedOpType.__members__:
            return cls(RedOpType[name])
        raise AttributeError(f"type object 'ReduceOp' has no attribute {name!r}")


class ReduceOp(metaclass=_Named):
    """A reduction: ``SUM``, ``AVG``, ``PRODUCT``, ``MIN``, ``MAX``, ``BAND``, ``BOR``, ``BXOR`` or ``PREMUL_SUM``.

    ``AVG`` takes floating and complex dtypes, ``MIN`` and ``MAX`` real ones, the last three integers and bool. Sums of
    half types are added up in float32 and rounded once; a sum of bool is ``any``.

    >>> ReduceOp.SUM == ReduceOp.SUM, ReduceOp.SUM == ReduceOp.MAX
    (True, False)
    """

    RedOpType = RedOpType

    _kind: Kind
    _factor: Any

    def __init__(self, op: Any = Kind.SUM, factor: Any = None) -> None:
        same = isinstance(op, ReduceOp)
        self._kind, self._factor = (op._kind, op._factor) if same else (Kind(op), factor)
        self._code = self._kind.value  # as native calls read it

    @property
    def op(self) -> Kind:
        """Which reduction it is."""
        return self._kind

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RedOpType):
            return self._kind is other
        return isinstance(other, ReduceOp) and (self._kind, self._factor) == (other._kind, other._factor)

    def __hash__(self) -> int:
        return hash(self._kind)

    def __repr__(self) -> str:
        return f"<RedOpType.{self._kind.name}: {self._kind.value}>"

    def __str__(self) -> str:
        return f"RedOpType.{self._kind.name}"

    def __reduce__(self) -> Any:
        return ReduceOp, (self._kind, self._factor)

    @property
    def name(self) -> str:
        """As it is written: ``"SUM"``."""
        return self._kind.name

    @property
    def value(self) -> int:
        """Its number."""
        return self._kind.value


def _make_nccl_premul_sum(factor: Any) -> ReduceOp:
    """A sum of what each rank multiplies by ``factor`` first."""
    return ReduceOp(RedOpType.PREMUL_SUM, factor)


class reduce_op(metaclass=_Named):
    """The old name of :class:`ReduceOp`."""

    def __new__(cls, kind: Any = RedOpType.SUM) -> Any:
        return ReduceOp(kind)
