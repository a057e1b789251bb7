"""``associative_scan``: all beginnings of a row combined, in as many rounds as the logarithm of its length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack.aten.higher_order import HigherOrderOperator
from tesserack.func import vmap
from tesserack.ops.control_flow._checks import check_same
from tesserack.ops.control_flow._flat import Flat, is_tensor, leaves_of
from tesserack.ops.control_flow.scan import sliced_first
from tesserack.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

__all__ = ["AssociativeScanOp", "associative_scan", "associative_scan_op"]


class AssociativeScanOp(HigherOrderOperator):
    """``associative_scan_op(combine_fn, xs, additional_inputs)`` along the first dim, of flat lists; ``combine_fn`` is
    given one entry of each, another, and the further inputs, and combines all that it is given, entry by entry."""

    def __init__(self) -> None:
        super().__init__("associative_scan")

    def compute(self, combine_fn: Any, xs: Sequence[Any], additional_inputs: Sequence[Any] = ()) -> Any:
        """The rounds."""
        return _rounds(lambda *leaves: list(combine_fn(*leaves, *additional_inputs)), list(xs))


associative_scan_op = AssociativeScanOp()


def _rounds(combine: Callable[..., list[Any]], xs: list[Any]) -> list[Any]:
    """Neighbours are combined, what comes of it is scanned, and the entries between follow from that: about 2 n
    combinations in 2 log n calls."""
    count = xs[0].shape[0]
    if count < 2:
        return xs
    pairs = combine(*(x[0 : count - 1 : 2] for x in xs), *(x[1::2] for x in xs))
    check_same("associative_scan", [x[1::2] for x in xs], pairs, ("xs", "combine_fn"))
    odd = _rounds(combine, pairs)
    if count == 2:
        return [ts.cat([x[:1], y]) for x, y in zip(xs, odd, strict=True)]
    before = odd if count % 2 else [x[:-1] for x in odd]
    between = combine(*before, *(x[2::2] for x in xs))
    even = [ts.cat([x[:1], y]) for x, y in zip(xs, between, strict=True)]
    return [_interleaved(one, other, count) for one, other in zip(even, odd, strict=True)]


def _interleaved(even: Any, odd: Any, count: int) -> Any:
    whole = ts.stack([even[: odd.shape[0]], odd], 1).flatten(0, 1)
    return ts.cat([whole, even[-1:]]) if count % 2 else whole


def associative_scan(
    combine_fn: Callable[..., Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """Combine each slice along ``dim`` of ``xs`` with all before it by an associative function of two slices.

    ``xs`` is a tensor or a nested structure of tensors, and ``combine_fn(a, b)`` returns the like, of the same shapes
    and dtypes. The function is called about 2 log n times, on many pairs at once: as it is, if ``combine_mode`` is
    "pointwise", through ``vmap`` if it is "generic" and looks at a slice as a whole. ``reverse`` combines from the end.
    Differentiable. ``ValueError`` for arguments that do not fit.

    >>> import tesserack as ts
    >>> from tesserack._higher_order_ops import associative_scan
    >>> associative_scan(lambda a, b: a * b, ts.tensor([1, 2, 3, 4]), 0)
    tensor([ 1,  2,  6, 24])
    >>> turns = ts.tensor([[0.0, -1.0], [1.0, 0.0]]).expand(3, 2, 2)
    >>> associative_scan(ts.matmul, turns, 0, combine_mode="generic")[1]
    tensor([[-1.,  0.],
            [ 0., -1.]])
    """
    _validate(combine_fn, xs, dim, reverse, combine_mode)
    slices, spec, dim = sliced_first("associative_scan", xs, dim)
    if reverse:
        slices = [x.flip(0) for x in slices]
    step = _Pair(combine_fn, spec)
    if combine_mode == "generic":
        found = _rounds(lambda *leaves: leaves_of(vmap(step)(*leaves)), slices)
    else:
        found = associative_scan_op(step, slices, ())
    found = [x.flip(0) if reverse else x for x in found]
    return tree_unflatten([x.movedim(0, dim) if dim else x for x in found], spec)


def _validate(combine_fn: Any, xs: Any, dim: Any, reverse: Any, combine_mode: Any) -> None:
    if not callable(combine_fn):
        raise ValueError(f"associative_scan: Combine_fn must be a callable, but got {combine_fn!r}")
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise ValueError(f"associative_scan: Dim must be an int, but got {type(dim).__name__}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"associative_scan: Reverse must be a bool, but got {type(reverse).__name__}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(
            f"associative_scan: Combine_mode must either 'pointwise' or 'generic', but got {combine_mode!r}"
        )
    leaves, _ = tree_flatten(xs)
    if not leaves:
        raise ValueError("associative_scan: Expected at least 1 xs leaf")
    for x in leaves:
        if not is_tensor(x):
            raise ValueError(f"associative_scan: xs leaves must be a Tensor, got {x!r}")
        if x.is_sparse:
            raise ValueError("associative_scan: xs leaves must dense Tensors, consider using `to_dense()`")


class _Pair(Flat):
    """A combination of two: leaves of one, then of the other."""

    def __init__(self, fn: Callable[..., Any], spec: TreeSpec) -> None:
        super().__init__(fn, spec, "combine_fn")

    def __call__(self, *leaves: Any) -> list[Any]:
        count = self.spec.num_leaves
        pair = (tree_unflatten(list(part), self.spec) for part in (leaves[:count], leaves[count : 2 * count]))
        flat, self.out_spec = tree_flatten(self.fn(*pair))
        if self.out_spec != self.spec:
            raise RuntimeError(
                f"associative_scan: expected combine_fn to return the structure of xs, {self.spec}, got {self.out_spec}"
            )
        return flat
