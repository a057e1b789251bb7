"""``torch._decomp``: what operators are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tesserack.fx.export.exported_program import default_decompositions

__all__ = ["core_aten_decompositions", "decomposition_table", "get_decompositions", "register_decomposition"]

decomposition_table: dict[Any, Any] = dict(default_decompositions())


def core_aten_decompositions() -> dict[Any, Any]:
    """By operator, what those are made of that PyTorch leaves out of its core."""
    return default_decompositions()


def get_decompositions(aten_ops: Iterable[Any], type: str = "post_autograd") -> dict[Any, Any]:
    """Of these operators, or all forms of those that are named without one, what they are made of."""
    wanted = [*aten_ops]
    return {op: made for op, made in decomposition_table.items() if op in wanted or op.overloadpacket in wanted}


def register_decomposition(
    aten_op: Any, registry: dict[Any, Any] | None = None, *, type: str = "post_autograd", unsafe: bool = False
) -> Callable[[Any], Any]:
    """A decorator: the function is what an operator, or each of several, is made of."""
    table = decomposition_table if registry is None else registry

    def decorate(function: Any) -> Any:
        for op in aten_op if isinstance(aten_op, (list, tuple)) else [aten_op]:
            forms = [getattr(op, name) for name in op.overloads()] if hasattr(op, "overloads") else [op]
            table.update(dict.fromkeys(forms, function))
        return function

    return decorate
