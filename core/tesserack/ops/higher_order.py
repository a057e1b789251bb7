"""Operators that are given functions, by name: ``torch.ops.higher_order``.

>>> import tesserack as ts
>>> from tesserack.ops import higher_order
>>> higher_order.cond(ts.tensor(False), lambda x: (x + 1,), lambda x: (x - 1,), (ts.ones(2),))
(tensor([0., 0.]),)
"""

from __future__ import annotations

import tesserack.ops.control_flow  # noqa: F401  (which makes those of the package)
from tesserack.aten.higher_order import HigherOrderOperator, higher_order_operator, higher_order_operators

__all__: list[str] = []


def __getattr__(name: str) -> HigherOrderOperator:
    if name.startswith("__"):
        raise AttributeError(name)
    return higher_order_operator(name)


def __dir__() -> list[str]:
    return sorted(higher_order_operators())
