"""Random numbers within :func:`vmap`: which entries get numbers of their own, and which the same ones.

With ``randomness="different"`` numbers are drawn for all entries in one call, as the operator draws them for a tensor
with one more dim in front; with "same" they are drawn for one entry.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack._tensor.overrides import TorchFunctionMode, redispatch_function
from tesserack.autograd.function import batching
from tesserack.func._batched import Batched, SharedDraw, Unbatchable
from tesserack.utils._pytree import tree_flatten, tree_map

__all__ = ["Draws", "by_draw", "drawing", "fill", "fills"]

# Where the sizes stand that a new tensor is to have.
_FACTORIES = {"rand": 0, "randn": 0, "randint": None, "normal": 2}
# By their arguments, element by element or along the last dim, so that further dims in front are more of the same.
_OF_VALUES = frozenset(("bernoulli", "normal", "poisson", "binomial", "_standard_gamma", "_sample_dirichlet"))
_LIKE = frozenset(("rand_like", "randn_like", "randint_like"))
_DROPOUT = frozenset(("dropout", "dropout1d", "dropout2d", "dropout3d", "dropout_", "native_dropout"))


@functools.cache
def drawing() -> frozenset[str]:
    """The names of all that draws random numbers."""
    found = {r["python_name"] for r in _native._operators() if r["effects"]["random"]}
    return frozenset(found) | _OF_VALUES | _LIKE | _DROPOUT


@functools.cache
def fills() -> frozenset[str]:
    """Those that fill their first argument."""
    return frozenset(name for name in drawing() if name.endswith("_"))


def _at(level: int) -> Callable[[Any], bool]:
    return lambda x: type(x) is Batched and x.level == level


def _given(args: Any, kwargs: Any) -> list[Any]:
    return tree_flatten((args, kwargs))[0]


class Draws(TorchFunctionMode):
    """Sees what the function calls, and has it draw for every entry what none of its arguments is batched for."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.count = batching[level - 1].batch_size
        self.different = batching[level - 1].randomness == "different"
        self.known = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name not in drawing():
            if not isinstance(func, FunctionType):
                return func(*args, **kwargs)
            with self:  # what it calls is to come here
                return redispatch_function(func, types, args, kwargs)
        before = _native._draws()
        try:
            return self._drawn(func, name, args, kwargs)
        finally:
            self.known += _native._draws() - before

    def _drawn(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if kwargs.get("out") is not None:
            raise SharedDraw(f"vmap: {name}: calling out variants of random operators is not possible; drop out=")
        given = _given(args, kwargs)
        if not self.different or (name in _DROPOUT and not _trains(args, kwargs)):
            return func(*args, **kwargs)
        if name in fills() and not _at(self.level)(args[0]):
            if any(map(_at(self.level), given)):
                return func(*args, **kwargs)  # which is refused as any other
            raise Unbatchable(f"{name} of a tensor that is the same for every entry")
        if any(map(_at(self.level), given)):
            return func(*args, **kwargs)
        if not any(isinstance(x, Tensor) for x in given):
            return self._made(func, name, args, kwargs)
        args, kwargs = tree_map(lambda x: self._spread(x) if isinstance(x, Tensor) else x, (args, kwargs))
        return func(*args, **kwargs)

    def _spread(self, x: Any) -> Batched:
        return Batched(x.expand((self.count, *x.shape)), self.level)

    def _made(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """A new tensor, by sizes alone."""
        sizes = _larger(name, args, kwargs, self.count)
        if sizes is None:
            return Batched(ts.stack([func(*args, **kwargs) for _ in range(self.count)]), self.level)
        args, kwargs = sizes
        return Batched(func(*args, **kwargs), self.level)


def _larger(name: str, args: Any, kwargs: Any, count: int) -> tuple[Any, Any] | None:
    """The arguments with one more dim among the sizes; None where there are none."""
    for key in ("size", "shape"):
        if key in kwargs:
            return args, {**kwargs, key: (count, *kwargs[key])}
    if name not in _FACTORIES:
        return None
    place = _FACTORIES[name]
    if place is None:  # behind the numbers
        place = next((k for k, x in enumerate(args) if isinstance(x, (tuple, list))), len(args))
    if place >= len(args):
        return None
    if isinstance(args[place], (tuple, list)):
        return (*args[:place], (count, *args[place]), *args[place + 1 :]), kwargs
    return (*args[:place], count, *args[place:]), kwargs


def _trains(args: Any, kwargs: Any) -> bool:
    """Whether dropout draws."""
    return bool(kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True)))


def by_draw(func: Any, name: str, level: int, args: Any, kwargs: Any) -> Any:
    """The numbers for arguments of which some are batched; NotImplemented where entries are to draw one by one."""
    given = _given(args, kwargs)
    whole = [x for x in given if _at(level)(x)]
    if batching[level - 1].randomness == "same":
        if name in _LIKE:
            return func(whole[0].value.select(0, 0), *args[1:], **kwargs)
        if name not in _DROPOUT:
            raise SharedDraw(
                f"vmap: {name}: Vmap does not currently support same randomness with a batched tensor input: "
                "expected arguments that are the same for every entry, got some that differ; draw the numbers first"
            )
        return NotImplemented
    if name in _OF_VALUES:
        rank = max(x.ndim for x in given if isinstance(x, Tensor))
        args, kwargs = tree_map(functools.partial(_aligned, rank=rank, level=level), (args, kwargs))
        return Batched(func(*args, **kwargs), level)
    if name in _LIKE or name == "dropout":
        return Batched(func(whole[0].value, *args[1:], **kwargs), level)
    if name == "multinomial" and whole[0].ndim <= 2:
        x = whole[0].value
        found = func(x.flatten(0, -2), *args[1:], **kwargs)
        return Batched(found.reshape((*x.shape[:-1], found.shape[-1])), level)
    return NotImplemented


def _aligned(x: Any, rank: int, level: int) -> Any:
    if not _at(level)(x) or x.ndim == rank:
        return x.value if _at(level)(x) else x
    return x.value.reshape((x.value.shape[0], *(1,) * (rank - x.ndim), *x.shape))


def fill(func: Any, name: str, level: int, args: Any, kwargs: Any) -> None:
    """Fill the first argument, a batched one, with numbers for every entry."""
    target, rest = args[0], args[1:]
    if name == "dropout_":
        made: Any = ts.dropout(target, *rest, **kwargs)
        target.value.copy_(made.value)
        return
    if batching[level - 1].randomness == "same":
        if any(map(_at(level), _given(rest, kwargs))):
            by_draw(func, name, level, args, kwargs)
        entry = target.value.detach().select(0, 0).clone()
        func(entry, *rest, **kwargs)
        target.value.copy_(entry.expand(target.value.shape))
        return
    rest, kwargs = tree_map(functools.partial(_aligned, rank=target.ndim, level=level), (rest, kwargs))
    func(target.value, *rest, **kwargs)
