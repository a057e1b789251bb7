"""Values of what a model makes itself, such as positions: whole numbers that no input and no weight decides."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

from tesserack import Tensor, _native
from tesserack._native import device
from tesserack.library import dispatch
from tesserack.utils._pytree import tree_leaves, tree_map

__all__ = ["Constants"]

_MAKERS = {"arange", "zeros", "ones", "full"}
_FOLLOWED = _MAKERS | {
    *("unsqueeze", "squeeze", "expand", "repeat", "reshape", "view", "flatten", "permute", "transpose", "basic_index"),
    *("add", "sub", "mul", "clamp", "clone", "contiguous", "to", "_to_copy", "long", "int"),
}
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
        if result.is_floating_point() or result.is_complex() or not all(id(t) in self._known for t in tensors):
            return
        if not tensors and name not in _MAKERS:
            return

        def value(x: Any) -> Any:
            if isinstance(x, Tensor):
                return self._known[id(x)]
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
        """What to say of a row that an embedding does not have; empty where there is none, or none is known."""
        if call.op != "embedding" or id(args[0]) not in self._known:
            return ""
        rows, last = int(args[1].shape[0]), int(self._known[id(args[0])].max())
        if last < rows:
            return ""
        return f"embedding: index {last}, made by the model itself, is out of range for weight {[*args[1].shape]}"
