"""What follows from values, as the number of elements that are not zero: no trace knows it, each takes a number for it.

The numbers differ from trace to trace, so that what is made of them shows, and branches that they decide as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.aten.operators import namespace
from tesserack.fx.export._watch import Watch

__all__ = ["GREATEST", "NEGATIVE", "NONE", "ONE", "Unknown"]

aten = namespace("aten")

# Turns: those from 0 on take numbers in between.
GREATEST, ONE, NONE, NEGATIVE = -1, -2, -3, -4
_MOST, _LARGE = 97, 1031


class Unknown:
    """What one trace takes: ``values``, in the order in which the program asks. ``given`` are some by their places."""

    def __init__(self, row: Sequence[int], turn: int, given: dict[int, Any], watch: Watch) -> None:
        self.row, self.turn, self.given, self.watch = (*row,), turn, given, watch
        self.values: list[Any] = []
        self.begins: Callable[[], None] = lambda: None  # who hears of the first size

    def takes(self, dtype: Any) -> bool:
        """Whether there are numbers for elements: a truth is a branch, and complex ones are not compared."""
        return dtype is not ts.bool and not dtype.is_complex

    def number(self, dtype: Any) -> Any:
        """The element of a tensor. Those of floats are of both signs, by the turn."""
        if dtype.is_floating_point:
            sign = -1 if (self.turn >> len(self.values) % 2) & 1 else 1
            special = {GREATEST: 2.0 * _LARGE, ONE: 1.0, NONE: 0.0}
            return self.watch.watched(self._next(lambda rng: sign * rng.uniform(0.1, 4), special))
        info = ts.iinfo(dtype)
        most = min(_LARGE, info.max)
        special = {GREATEST: most, ONE: 1, NONE: 0, NEGATIVE: max(-5 - len(self.values), info.min)}
        return self.watch.watched(self._next(lambda rng: rng.randint(2, min(_MOST, most)), special))

    def size(self, most: int | None = None, least: int = 0) -> int:
        """How many there are, of at most ``most``."""
        greatest = _LARGE + 2 * len(self.values) if most is None else max(most, least)
        lower = min(max(least, 2), greatest)
        special = {GREATEST: greatest, ONE: 1, NONE: 0}
        found = self._next(lambda rng: rng.randint(lower, min(max(_MOST, lower), greatest)), special)
        found = self.values[-1] = int(max(least, min(found, greatest)))
        if not self.watch.unknown:
            self.begins()
        self.watch.unknown.add(found)
        return found

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        """A size that the rule of a program's own operator leaves open. ``ValueError`` for limits that hold none."""
        if min < 0 or (max is not None and max < min):
            raise ValueError(f"new_dynamic_size: expected 0 <= min <= max, got min={min}, max={max}")
        return self.size(max, min)

    create_unbacked_symint = new_dynamic_size

    def _next(self, between: Callable[[random.Random], Any], special: dict[int, Any]) -> Any:
        place = len(self.values)
        value = self.given.get(place, special.get(self.turn))
        if value is None:
            value = between(random.Random(f"{self.row} {self.turn} {place}"))
        self.values.append(value)
        return value

    def knows(self, name: str) -> bool:
        """Whether it is known which sizes an operator's results have."""
        return name in _OUTLINES

    def tells(self, target: Any) -> bool:
        """Whether calls of it may tell what follows from values."""
        packet = getattr(target, "overloadpacket", None)
        if packet is None:
            return False
        return target.namespace != "aten" or packet.__name__ in _OUTLINES or packet.__name__ == "_local_scalar_dense"

    def outline(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The results, without data, of an operator whose sizes follow from values."""
        return _OUTLINES[name](self, *args, **kwargs)


def _long(*sizes: int) -> Tensor:
    return ts.empty(sizes, dtype=ts.int64, device="meta")


def _nonzero(unknown: Unknown, x: Tensor) -> Tensor:
    return _long(unknown.size(x.numel()), x.ndim)


def _nonzero_by_dims(unknown: Unknown, x: Tensor) -> list[Tensor]:
    count = unknown.size(x.numel())
    return [_long(count) for _ in range(max(1, x.ndim))]


def _masked_select(unknown: Unknown, x: Tensor, mask: Tensor) -> Tensor:
    count = unknown.size(ts.broadcast_tensors(x, mask)[0].numel())
    return ts.empty(count, dtype=x.dtype, device="meta")


def _index(unknown: Unknown, x: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """A mask of n dims is n indices of one length; several masks choose as many."""
    masks = [i for i in indices if i is not None and i.dtype in (ts.bool, ts.uint8)]
    count = unknown.size(min(mask.numel() for mask in masks))
    found: list[Tensor | None] = []
    for i in indices:
        masks_here = i is not None and i.dtype in (ts.bool, ts.uint8)
        found += [_long(count) for _ in range(i.ndim)] if masks_here and i is not None else [i]
    return aten.index.Tensor(x, found)


def _unique2(
    unknown: Unknown, x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    count = unknown.size(x.numel(), min(1, x.numel()))
    inverse = _long(*(x.shape if return_inverse or return_counts else (0,)))
    return x.new_empty(count), inverse, _long(count if return_counts else 0)


def _unique_dim(
    unknown: Unknown,
    x: Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    length = x.shape[dim]
    count = unknown.size(length, min(1, length))
    sizes = [count if k == dim % x.ndim else n for k, n in enumerate(x.shape)]
    return x.new_empty(sizes), _long(length), _long(count)


def _unique_consecutive(
    unknown: Unknown, x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    if dim is not None:
        return _unique_dim(unknown, x, dim)
    count = unknown.size(x.numel(), min(1, x.numel()))
    inverse = _long(*(x.shape if return_inverse else (0,)))
    return x.new_empty(count), inverse, _long(count if return_counts else 0)


def _repeat_interleave(unknown: Unknown, repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    return _long(unknown.size() if output_size is None else output_size)


def _bincount(unknown: Unknown, x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    dtype = ts.int64 if weights is None else weights.dtype if weights.is_floating_point() else ts.float64
    return ts.empty(unknown.size(None, minlength), dtype=dtype, device="meta")


_OUTLINES: dict[str, Callable[..., Any]] = {
    "nonzero": _nonzero,
    "argwhere": _nonzero,
    "nonzero_numpy": _nonzero_by_dims,
    "where": _nonzero_by_dims,
    "masked_select": _masked_select,
    "index": _index,
    "_unique2": _unique2,
    "unique_dim": _unique_dim,
    "_unique_consecutive": _unique_consecutive,
    "repeat_interleave": _repeat_interleave,
    "bincount": _bincount,
}
