"""``map``: a function of each slice along the first dim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tesserack.aten.higher_order import HigherOrderOperator
from tesserack.ops.control_flow._checks import check_callable
from tesserack.ops.control_flow._flat import Flat
from tesserack.ops.control_flow.scan import sliced_first, stacked
from tesserack.utils._pytree import tree_flatten

__all__ = ["MapImpl", "map", "map_impl"]


class MapImpl(HigherOrderOperator):
    """``map_impl(f, xs, pos_args)`` of flat lists: ``f`` is given one slice of each of ``xs``, then ``pos_args``."""

    def __init__(self) -> None:
        super().__init__("map_impl")

    def compute(self, f: Any, xs: Sequence[Any], pos_args: Sequence[Any] = ()) -> Any:
        """The loop, and results stacked."""
        return stacked("map", [list(f(*slices, *pos_args)) for slices in zip(*(x.unbind(0) for x in xs), strict=True)])


map_impl = MapImpl()


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """``f(x, *args)`` for each slice ``x`` along the first dim of ``xs``, results stacked.

    ``xs`` and results are tensors or nested structures of tensors, all of ``xs`` of one size, of at least 1, in the
    first dim; every slice gives results of the same shapes and dtypes, else ``RuntimeError``. Differentiable.

    >>> import tesserack as ts
    >>> from tesserack._higher_order_ops import map
    >>> map(lambda row, scale: (row * scale).sum(), ts.ones(2, 3), ts.tensor(2.0))
    tensor([6., 6.])
    """
    check_callable("map", f=f)
    count = len(tree_flatten(xs)[0])
    if not count:
        raise RuntimeError(f"map: expected xs with at least one tensor, got {xs!r}")
    if any(not getattr(x, "ndim", 1) for x in tree_flatten(xs)[0]):
        raise RuntimeError("map: Leading dimensions of mapped xs cannot be 0: got a tensor without dims")
    slices, _, _ = sliced_first("map", xs, 0)
    further, _ = tree_flatten(args)
    step = Flat(f, tree_flatten((xs, *args))[1], "f")
    return step.restored(map_impl(step, slices, further))
