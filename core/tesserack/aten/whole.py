"""Composed operators as ATen has them whole: what an exported program keeps as it was written, and is decomposed into
parts later on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tesserack import Tensor
from tesserack.aten.names import shown
from tesserack.aten.operators import OpOverload, namespace
from tesserack.aten.renamed import Form
from tesserack.aten.signatures import CDIST_MODES
from tesserack.ops.layers import REDUCTIONS

__all__ = ["by_values", "whole_form", "whole_overloads"]

# Those that look at values before they compute: without memory nothing but the whole can run.
_BY_VALUES = {f"{name}{suffix}": overload for name in ("quantile", "nanquantile")
              for suffix, overload in (("", "default"), (".scalar", "scalar"))}  # fmt: skip

# Declared in ATen as they are here, by the overload's name there.
_ALIKE = {
    "linear": "default",
    "matmul": "default",
    **{f"conv{d}d": "default" for d in (1, 2, 3)},
    **{f"conv{d}d.padding": "padding" for d in (1, 2, 3)},
    "conv_transpose1d": "default",
    "conv_transpose2d": "input",
    "conv_transpose3d": "input",
    "scaled_dot_product_attention": "default",
    "rms_norm": "default",
    "max_pool1d": "default",
    "max_pool2d": "default",
    "avg_pool1d": "default",
    "adaptive_avg_pool1d": "default",
    "adaptive_avg_pool2d": "default",
    "prelu": "default",
    "relu6": "default",
    "einsum": "default",
    "bilinear": "default",
    "pad": "default",
    "outer": "default",
    "inner": "default",
    **_BY_VALUES,
}

_Named = tuple[str, tuple[Any, ...]] | None


def _norm(name: str) -> Callable[..., _Named]:
    return lambda input, sizes, weight, bias, eps: (f"{name}.default", (input, sizes, weight, bias, eps, False))


def _instance_norm(
    input: Tensor, mean: Any, var: Any, weight: Any, bias: Any, of_input: bool, momentum: float, eps: float
) -> _Named:
    if mean is not None:  # which it writes to
        return None
    return "instance_norm.default", (input, weight, bias, mean, var, of_input, momentum, eps, False)


def _batch_norm(
    input: Tensor, mean: Any, var: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> _Named:
    if training and mean is not None:
        return None
    return "batch_norm.default", (input, weight, bias, mean, var, training, momentum, eps, False)


def _softmax(name: str) -> Callable[..., _Named]:
    return lambda self, dim, dtype: (f"{name}.int", (self, dim) if dtype is None else (self, dim, dtype))


def _without(args: tuple[Any, ...], defaults: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments, the last ones only where they are not as they are by default."""
    kept, count = len(args), len(args) - len(defaults)
    while kept > count and args[kept - 1] is not True and args[kept - 1] == defaults[kept - 1 - count]:
        kept -= 1
    return args[:kept]


def _cross_entropy(
    self: Tensor, target: Tensor, weight: Any, ignore_index: int, reduction: str, smoothing: float
) -> _Named:
    args = (self, target, weight, REDUCTIONS.index(reduction), ignore_index, smoothing)
    return "cross_entropy_loss.default", _without(args, (None, 1, -100, 0.0)) if weight is None else args


def _nll_loss(self: Tensor, target: Tensor, weight: Any, ignore_index: int, reduction: str) -> _Named:
    args = (self, target, weight, REDUCTIONS.index(reduction), ignore_index)
    return "nll_loss_nd.default", _without(args, (None, 1, -100)) if weight is None else args


def _cdist(x1: Tensor, x2: Tensor, p: float, mode: str) -> _Named:
    # Whether products or differences give the distances follows from how many rows there are, which may vary.
    return "cdist.default", _without((x1, x2, p, CDIST_MODES.index(mode) or None), (2.0, None))


_OTHERS: dict[str, Callable[..., _Named]] = {
    "layer_norm": _norm("layer_norm"),
    "group_norm": _norm("group_norm"),
    "instance_norm": _instance_norm,
    "batch_norm": _batch_norm,
    # In evaluation it is its argument, which may be written to.
    "dropout": lambda input, p, training, inplace: (
        ("dropout.default", (input, p, training)) if training and not inplace else None
    ),
    "softmax": _softmax("softmax"),
    "log_softmax": _softmax("log_softmax"),
    "cross_entropy": _cross_entropy,
    "nll_loss": _nll_loss,
    "cdist": _cdist,
    "l1_loss": lambda self, target, reduction: (
        "l1_loss.default",
        _without((self, target, REDUCTIONS.index(reduction)), (1,)),
    ),
}


def _overload(name: str) -> OpOverload:
    packet, _, overload = name.partition(".")
    return getattr(getattr(namespace("aten"), packet), overload)  # type: ignore[no-any-return]


@functools.cache
def whole_overloads() -> frozenset[OpOverload]:
    """The operators of ATen that a mode can be given whole."""
    names = [f"{name.partition('.')[0]}.{overload}" for name, overload in _ALIKE.items()]
    names += [f"{name}.default" for name in _OTHERS if name not in ("softmax", "log_softmax", "cross_entropy")]
    names += ["softmax.int", "log_softmax.int", "cross_entropy_loss.default", "nll_loss_nd.default"]
    return frozenset(_overload(name) for name in names if name != "nll_loss.default")


@functools.cache
def by_values() -> frozenset[OpOverload]:
    """Those of :func:`whole_overloads` that tensors without memory do not have parts of."""
    return frozenset(_overload(f"{name.partition('.')[0]}.{overload}") for name, overload in _BY_VALUES.items())


def whole_form(op: str, schema: str, args: Sequence[Any]) -> Form | None:
    """A call of an operator here as the one of ATen that it is; None if it is to be seen as its parts."""
    overload = _ALIKE.get(op)
    if overload is not None:
        how = shown(op, schema)
        positional, keywords = how.arguments(args)
        return Form(getattr(how.packet, overload), positional, keywords)
    named = _OTHERS[op](*args) if op in _OTHERS else None
    return None if named is None else Form(_overload(named[0]), named[1], {})
