"""Tensors that broadcast to all pairs of one axis in silence, such as a prediction [n, 1] and a target [n]."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tesserack import Tensor
from tesserack.library import dispatch
from tesserack.utils._pytree import tree_leaves

__all__ = ["Broadcasts", "Pairs"]

_COMPARED = {"eq", "ne", "lt", "le", "gt", "ge", "isclose"}
_ARITHMETIC = {
    *("add", "sub", "subtract", "rsub", "mul", "multiply", "div", "divide", "true_divide", "floor_divide"),
    *("remainder", "fmod", "pow", "float_power", "maximum", "minimum", "fmax", "fmin", "atan2", "arctan2", "hypot"),
    *("logaddexp", "logaddexp2", "xlogy", "copysign", "lerp", "addcmul", "addcdiv", "clamp", "where", "masked_fill"),
    *(f"{kind}_{name}" for kind in ("logical", "bitwise") for name in ("and", "or", "xor")),
}
_LOSSES = {
    *("poisson_nll_loss", "soft_margin_loss", "hinge_embedding_loss", "kl_div", "margin_ranking_loss"),
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "gaussian_nll_loss"),
    *("binary_cross_entropy", "binary_cross_entropy_with_logits"),  # of a weight
}
_JOINING = _COMPARED | _ARITHMETIC | _LOSSES
# Who writes these chooses where the axes of size 1 are.
_PLACING = {
    *("unsqueeze", "view", "reshape", "view_as", "reshape_as", "unflatten", "expand", "expand_as", "broadcast_to"),
    *("permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "adjoint", "as_strided", "chunk"),
    *("atleast_1d", "atleast_2d", "atleast_3d", "slice", "narrow", "split", "tensor_split", "split_with_sizes"),
}
_REDUCING = {
    *("sum", "nansum", "mean", "nanmean", "prod", "std", "var", "std_mean", "var_mean", "amax", "amin", "aminmax"),
    *("max", "min", "median", "nanmedian", "mode", "kthvalue", "quantile", "nanquantile", "norm", "linalg_norm"),
    *("linalg_vector_norm", "logsumexp", "all", "any", "count_nonzero"),
}
_OF_VALUES_AND_PLACES = {"max", "min", "median", "nanmedian", "mode", "kthvalue"}
# An axis of size 1 is what a layer makes or a choice takes: a prediction, not a column for all pairs.
_CHOOSING = {"gather", "take_along_dim", "argmax", "argmin", "topk"}
_CHOOSING |= {"convolution", *(f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3))}
_FEATURES = {"linear", "bilinear"}  # make the last axis anew
_GRIDS = {"arange", "range", "linspace", "logspace"}
_FRESH = {
    *("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "randint_like"),
    *("new_zeros", "new_ones", "new_full", "new_empty", "new_tensor"),
}
_NEW, _SLICE = 2, 1  # kinds of entries of an index


class _Origin(NamedTuple):
    """Where a tensor comes from. ``meant``: axes of size 1, counted from the end, that the program placed."""

    given: bool = False  # depends on an input
    grid: bool = False  # of numbers such as positions alone
    meant: frozenset[int] = frozenset()


_UNKNOWN = _Origin()


@dataclass(frozen=True)
class Pairs:
    """Two tensors of one call that broadcast so, and the size that the result then has twice."""

    text: str
    size: int


class Broadcasts:
    """Follows which axes of size 1 a program places for broadcasting, while a trial runs."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], _Origin]] = {}
        for leaf in tree_leaves([*inputs]):
            if isinstance(leaf, Tensor):
                self._keep(leaf, _Origin(given=True))

    def _keep(self, tensor: Tensor, origin: _Origin) -> None:
        self._known[id(tensor)] = weakref.ref(tensor), origin

    def _of(self, tensor: Tensor) -> _Origin:
        found = self._known.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else _UNKNOWN

    def note(self, call: dispatch.Call, args: Sequence[Any], result: Any) -> None:
        """Follow a call."""
        name = call.op.partition(".")[0].rstrip("_")
        sources = [leaf for leaf in tree_leaves([*args]) if isinstance(leaf, Tensor)]
        origins = [self._of(source) for source in sources]
        given = name not in _FRESH and any(origin.given for origin in origins)
        grid = name in _GRIDS or (bool(origins) and all(origin.grid for origin in origins))
        for place, leaf in enumerate(tree_leaves(result)):
            if isinstance(leaf, Tensor):
                meant = self._meant(name, args, sources, leaf, place)
                self._keep(leaf, _Origin(given, grid, frozenset(meant)))

    def _meant(self, name: str, args: Sequence[Any], sources: Sequence[Tensor], result: Tensor, place: int) -> set[int]:
        ones = {axis for axis in range(-result.dim(), 0) if result.shape[axis] == 1}
        if not ones or name in _CHOOSING or (place and name in _OF_VALUES_AND_PLACES):
            return set()
        inherited = ones & {axis for source in sources for axis in self._of(source).meant}
        if name in _FEATURES:
            return inherited - {-1}
        if not sources or (sources[0] is not result and sources[0].shape == result.shape):
            return inherited
        if name in _PLACING:
            return ones
        if name == "basic_index":
            return ones & self._indexed(sources[0], args[1], result.dim())
        if name in _REDUCING and sources[0].dim() == result.dim():
            return inherited | {axis for axis in ones if sources[0].shape[axis] != 1}
        return inherited

    def _indexed(self, source: Tensor, entries: Sequence[int], count: int) -> set[int]:
        """Axes of ``x[...]`` that are placed there, those cut to size 1 too, and those that were."""
        meant, axis, place = self._of(source).meant, 0, 0
        found = set()
        for kind in entries[::4]:
            if kind == _NEW or (kind == _SLICE and (source.shape[axis] != 1 or axis - source.dim() in meant)):
                found.add(place - count)
            place += kind in (_NEW, _SLICE)
            axis += kind != _NEW
        rest = range(axis - source.dim(), 0)
        return found | {k for k in rest if k in meant}

    def pairs(self, call: dispatch.Call, args: Sequence[Any]) -> Pairs | None:
        """What broadcasts to all pairs of an axis in this call, and was not written so."""
        name = call.op.partition(".")[0]
        if name not in _JOINING:
            return None
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        for one, two in itertools.combinations(tensors, 2):
            size = self._twice(*sorted((one, two), key=lambda tensor: -tensor.dim()))
            if size is not None:
                a, b = [*one.shape], [*two.shape]
                told = (
                    f"{name}: {a} and {b} broadcast to {_joined(a, b)}, which is rarely meant; make both of one shape"
                )
                return Pairs(told, size)
        return None

    def _twice(self, longer: Tensor, shorter: Tensor) -> int | None:
        """The size of an axis of ``longer`` alone that an axis of ``shorter`` also has, beside a 1 of ``longer``."""
        if not self._of(longer).given or self._of(shorter).grid:
            return None
        meant = self._of(longer).meant
        for axis in range(-shorter.dim(), 0):
            size = int(shorter.shape[axis])
            if size != 1 and longer.shape[axis] == 1 and axis not in meant and size in _lead(longer, shorter):
                return size
        return None


def _lead(longer: Tensor, shorter: Tensor) -> list[int]:
    return [int(size) for size in longer.shape[: longer.dim() - shorter.dim()]]


def _joined(one: list[int], two: list[int]) -> list[int]:
    sizes = itertools.zip_longest(reversed(one), reversed(two), fillvalue=1)
    return [b if a == 1 else a for a, b in sizes][::-1]
