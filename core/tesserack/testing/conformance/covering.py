"""Which dtypes and layouts of an operator are tried, so that a card that compiles every kernel is done in minutes.

An operator's text, its dtype and the way its operands lie go wrong each by itself or by pairs: not all combinations of
the three tell anything new. ``tesserack conform --thorough`` tries them all.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from tesserack.testing import cases
from tesserack.testing.conformance.areas import entry_point

__all__ = ["QUICK_DTYPES", "is_covered", "layouts_of", "leads_quickly", "stands_beside_many"]

#: What a quick run tries, beside one dtype of real numbers.
QUICK_DTYPES = ("int64", "bool")
_QUICK_LEADS = 3  # in a quick run one in so many is tried in all layouts, of operators that one kernel computes

_LEADING = ("float32", "int64", "bool")
_REAL = tuple(dtype for dtype in cases.FLOATING if dtype not in _LEADING)
_WHOLE = tuple(dtype for dtype in cases.DTYPES if dtype not in (*cases.FLOATING, *_LEADING))


def _turn(choices: Sequence[str], *of: str) -> str:
    """One of several, the same in every run, another for most names."""
    return choices[zlib.crc32("\0".join(of).encode()) % len(choices)]


def is_covered(name: str, dtype: str, real: str = "float32") -> bool:
    """Whether an operator is tried at a dtype: for a required kernel all, for others float32, or what the card has in
    its place (``real``), int64, bool, one more real and one more whole dtype, in turn.

    >>> is_covered("add", "int8"), is_covered("conv2d", "float32"), is_covered("cosh_", "bool")
    (True, True, True)
    >>> sum(is_covered("conv2d", dtype) for dtype in cases.DTYPES)
    5
    """
    if entry_point(name) or dtype in (real, *_LEADING) or dtype not in cases.DTYPES:
        return True
    return dtype in (_turn(_REAL, name), _turn(_WHOLE, name))


def layouts_of(name: str, dtype: str, lead: str = "float32") -> tuple[str, ...]:
    """The layouts that an operator is tried in at a dtype: at ``lead`` all, at others rows first and one more in turn.

    >>> layouts_of("add", "float32")
    ('contiguous', 'transposed', 'stepped', 'flipped', 'expanded')
    >>> len(layouts_of("add", "int8"))
    2
    """
    every = (*cases.LAYOUTS, "expanded")
    return every if dtype == lead else (every[0], _turn(every[1:], name, dtype))


def stands_beside_many(name: str) -> bool:
    """Whether the kernel that computes an operator computes dozens of others too: a quick run tries few of them in all
    layouts, and few at other dtypes than real numbers.

    >>> stands_beside_many("exp"), stands_beside_many("cumsum")
    (True, False)
    """
    return entry_point(name) == "pointwise"


def leads_quickly(name: str) -> bool:
    """Whether a quick run tries an operator in all layouts.

    >>> leads_quickly("cumsum")
    True
    """
    return not stands_beside_many(name) or zlib.crc32(name.encode()) % _QUICK_LEADS == 0
