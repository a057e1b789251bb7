"""Annotations of shapes for programs without ``jaxtyping``, written as its are: ``Float[Tensor, "batch dim"]``.

To a type checker they are ``Annotated``: the tensor itself, with a remark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

from tesserack import _native
from tesserack.utils.shapes._dims import parse_shape

__all__ = ["Bool", "Complex", "Float", "Inexact", "Int", "Integer", "Num", "Real", "Shaped", "UInt"]

_FLOATS = tuple(str(kind).rpartition(".")[2] for kind in _native._dtypes if kind.is_floating_point)
_INTS, _UINTS = ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
_COMPLEX = ("complex32", "complex64", "complex128")


class ShapeHint:
    """What ``Float[Tensor, "batch dim"]`` is: the attributes are those of ``jaxtyping``'s."""

    def __init__(self, family: str, array_type: Any, dim_str: str, dtypes: tuple[str, ...] | None) -> None:
        parse_shape(dim_str)  # a mistake is told where it is written
        self.family, self.array_type, self.dim_str, self.dtypes = family, array_type, dim_str, dtypes

    def __call__(self) -> None:
        """Annotations are to be callable for :mod:`typing`; this one makes nothing."""
        raise TypeError(f"{self!r} is an annotation")

    def __or__(self, other: Any) -> Any:
        return Union[self, other]  # noqa: UP007 - this is what makes | of it

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"{self.family}[{getattr(self.array_type, '__name__', self.array_type)}, {self.dim_str!r}]"


class _Family:
    def __init__(self, name: str, dtypes: tuple[str, ...] | None) -> None:
        self._name, self._dtypes = name, dtypes

    def __getitem__(self, given: Any) -> ShapeHint:
        if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[1], str):
            raise TypeError(f'{self._name}: expected {self._name}[Tensor, "axes"], got {given!r}')
        return ShapeHint(self._name, *given, self._dtypes)


if TYPE_CHECKING:
    from typing import Annotated as Bool
    from typing import Annotated as Complex
    from typing import Annotated as Float
    from typing import Annotated as Inexact
    from typing import Annotated as Int
    from typing import Annotated as Integer
    from typing import Annotated as Num
    from typing import Annotated as Real
    from typing import Annotated as Shaped
    from typing import Annotated as UInt
else:
    Bool = _Family("Bool", ("bool",))
    Complex = _Family("Complex", _COMPLEX)
    Float = _Family("Float", _FLOATS)
    Inexact = _Family("Inexact", _FLOATS + _COMPLEX)
    Int = _Family("Int", _INTS)
    Integer = _Family("Integer", _UINTS + _INTS)
    Num = _Family("Num", _UINTS + _INTS + _FLOATS + _COMPLEX)
    Real = _Family("Real", _UINTS + _INTS + _FLOATS)
    Shaped = _Family("Shaped", None)
    UInt = _Family("UInt", _UINTS)
