"""Tensors whose conjugation or negation is pending, where memory is handed on as it is.

>>> import tesserack as ts
>>> x = ts.tensor([1 + 2j]).conj()
>>> physical(x), plain(x)
(tensor([1.+2.j]), tensor([1.-2.j]))
>>> bits_of(x), with_bits(physical(x), "conj")
('conj', tensor([1.-2.j]))
"""

from __future__ import annotations

from tesserack import _native
from tesserack._native import Tensor

__all__ = ["bits_of", "physical", "plain", "with_bits"]


def bits_of(tensor: Tensor) -> str:
    """What is pending: ``"conj"``, ``"neg"``, both with a comma between them, or nothing."""
    return ",".join(name for name, on in (("conj", tensor.is_conj()), ("neg", tensor.is_neg())) if on)


def with_bits(tensor: Tensor, bits: str) -> Tensor:
    """The view of plain memory in which this is pending, without history."""
    tensor = tensor.detach()
    if "conj" in bits:
        tensor = tensor.conj()
    return (tensor._neg_view() if "neg" in bits else tensor).detach()


def physical(tensor: Tensor) -> Tensor:
    """The same memory as it is."""
    if not bits_of(tensor):
        return tensor
    return _native._operator_function("_physical")(tensor)  # type: ignore[no-any-return]


def plain(tensor: Tensor) -> Tensor:
    """The tensor itself, or its values in memory of their own."""
    return tensor.resolve_conj().resolve_neg()
