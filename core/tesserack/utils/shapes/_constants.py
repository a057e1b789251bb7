"""Values of what a model makes itself, such as positions: whole numbers that no input and no weight decides."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

from tesserack import Tensor, _native, empty_like
from tesserack import bool as boolean
from tesserack._native import device
from tesserack.library import dispatch
from tesserack.utils._pytree import tree_leaves, tree_map

__all__ = ["Constants"]

_MAKERS = {"arange", "zeros", "ones", "full"}
_LIKE = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}  # of a tensor, but not its values
_FOLLOWED = (
    _MAKERS
    | _LIKE
    | {
        *(
            "unsqueeze",
            "squeeze",
            "expand",
            "repeat",
            "reshape",
            "view",
            "flatten",
            "permute",
            "transpose",
            "basic_index",
        ),
        *("add", "sub", "mul", "clamp", "clone", "contiguous", "to", "_to_copy", "long", "int"),
    }
)
_MOST = 1 << 16  # elements; tables of positions have fewer


@functools.cache
def _writers() -> frozenset[str]:
    return frozenset(record["name"] for record in _native._operators() if "!" in record["schema"])


class Constants:
    """The values, by tensor, while a trial runs; they are worked out on the cpu."""

    def __init__(self) -> None:
        self._known: dict[int, Tensor] = {}

    def note(self, call: dispatch.Call, args: Sequence[Any], result: Any) -> None:
        """Follow a call; forget everything where something known may have been written to."""
        if call.op in _writers():
            self._known.clear()
        name = call.op.partition(".")[0]
        if name not in _FOLLOWED or not isinstance(result, Tensor) or not 0 < result.numel() <= _MOST:
            return
        tensors = [leaf for leaf in tree_leaves([*args]) if isinstance(leaf, Tensor)]
        if (
            result.is_floating_point()
            or result.is_complex()
            or (name not in _LIKE and not all(id(t) in self._known for t in tensors))
        ):
            return
        if not tensors and name not in _MAKERS:
            return

        def value(x: Any) -> Any:
            if isinstance(x, Tensor):
                return empty_like(x, device="cpu") if name in _LIKE else self._known[id(x)]
            return device("cpu") if isinstance(x, device) else x

        try:
            with device("cpu"):
                found = call.redispatch(
                    *(tree_map(value, a) if isinstance(a, (list, tuple)) else value(a) for a in args)
                )
        except (RuntimeError, TypeError, ValueError):
            return
        self._known[id(result)] = found
        weakref.finalize(result, self._known.pop, id(result), None)

    def beyond(self, call: dispatch.Call, args: Sequence[Any]) -> str:
        """What to say of a row that a table does not have; empty where there is none, or none is known."""
        for index, table, axis in _looked_up(call.op, args):
            known, rows = self._known.get(id(index)), int(table.shape[axis])
            if known is None or int(known.max()) < rows:
                continue
            last = int(known.max())
            # The size of this axis alone: others may have names, and the text shall be one for all sizes.
            where = f"weight {[*table.shape]}" if call.op == "embedding" else f"axis {axis}, of size {rows}"
            return f"{call.op}: index {last}, made by the model itself, is out of range for {where}"
        return ""


def _looked_up(op: str, args: Sequence[Any]) -> list[tuple[Tensor, Tensor, int]]:
    """Positions, the table that they are taken from, and its axis."""
    if op == "embedding":
        return [(args[0], args[1], 0)]
    if op == "index_select" and args[0].dim():
        return [(args[2], args[0], args[1] % args[0].dim())]
    if op == "index" and all(x is None or x.dtype is not boolean for x in args[1]):
        return [(index, args[0], axis) for axis, index in enumerate(args[1]) if index is not None]
    return []
