"""Results that must be exactly what they should be, signs of zero and NaN included, and words for others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.testing import cases
from tesserack.testing.conformance.card import Card
from tesserack.testing.samples import Input

__all__ = ["expect", "made", "real", "rounded", "there"]

_DIGITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}


def made(array: Any, dtype: str, card: Card) -> Any:
    """A tensor of an array that holds what the dtype holds, bit for bit, on the device, which must have the dtype."""
    card.needs(dtype)
    return ts.from_numpy(np.ascontiguousarray(array, dtype=dtype)).to(card.device)


def there(array: Any, dtype: str, card: Card) -> Any:
    """A tensor of these numbers, rounded to the dtype on the host, on the device, which must have the dtype."""
    card.needs(dtype)
    whole = ts.from_numpy(np.array(array, dtype=np.float64, copy=True))
    return whole.to(getattr(ts, dtype)).to(card.device)


def real(array: Any, card: Card) -> Any:
    """A tensor of these numbers in the device's own real dtype, on the device."""
    return there(array, card.real, card)


def rounded(array: Any, dtype: str) -> Any:
    """The numbers as the dtype holds them."""
    return cases.rounded(Input(np.asarray(array, dtype=np.float64)), dtype)


def expect(found: Any, wanted: Any, subject: str, what: str, card: Card, ulp: float = 0) -> None:
    """Fail unless a result is this, to the bit or to so many units in the last place; a failure names the kernel and
    dtype (``subject``), the layout and size (``what``), and the first wrong element."""
    values, wanted = cases.values(found), np.asarray(wanted)
    if values.shape != wanted.shape:
        pytest.fail(
            f"{subject} on {card.name}: {what}: expected shape {wanted.shape}, got {values.shape}", pytrace=False
        )
    same = values == wanted
    if values.dtype.kind == "f":
        with np.errstate(all="ignore"):
            unit = np.exp2(np.floor(np.log2(np.abs(wanted) + 1e-300)) - _DIGITS[str(found.dtype).rpartition(".")[2]])
            same |= np.isnan(values) & np.isnan(wanted) | (np.abs(values - wanted) <= ulp * unit)
            same &= (np.signbit(values) == np.signbit(wanted)) | (wanted != 0) | np.isnan(wanted)
    if same.all():
        return
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    place = f"element {list(at)}: " if at else ""
    count = f" ({int((~same).sum())} of {same.size} wrong)" if at else ""
    pytest.fail(
        f"{subject} on {card.name}: {what}: {place}expected {wanted[at]!s}, got {values[at]!s}{count}", pytrace=False
    )
