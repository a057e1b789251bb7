"""Kullback-Leibler divergences by closed forms, looked up by the two classes.

>>> import tesserack as ts
>>> from tesserack.distributions import Normal, kl_divergence
>>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
tensor(0.5000)
"""

from __future__ import annotations

import warnings
from functools import total_ordering
from typing import TYPE_CHECKING, Any, TypeVar

from tesserack.distributions.distribution import Distribution

if TYPE_CHECKING:
    from collections.abc import Callable

    from tesserack import Tensor

__all__ = ["kl_divergence", "register_kl"]

Rule = TypeVar("Rule", bound="Callable[[Any, Any], Any]")

_KL_REGISTRY: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}
_KL_MEMOIZE: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Rule], Rule]:
    """A decorator that makes ``rule(p, q)`` the divergence of ``type_p`` from ``type_q`` and their subclasses.

    The most specific rule wins. Classes need not derive from `Distribution`: packages have their own beside it.
    ``TypeError`` for what is no class.
    """
    for kind in (type_p, type_q):
        if not isinstance(kind, type):
            raise TypeError(f"Expected type_p and type_q to be Distribution subclasses but got {kind}")

    def add(rule: Rule) -> Rule:
        _KL_REGISTRY[type_p, type_q] = rule
        _KL_MEMOIZE.clear()
        return rule

    return add


@total_ordering
class _Match:
    """A pair of classes, ordered by being more specific."""

    __slots__ = ("types",)

    def __init__(self, *types: type) -> None:
        self.types = types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Match) and self.types == other.types

    def __le__(self, other: _Match) -> bool:
        for mine, theirs in zip(self.types, other.types, strict=True):
            if not issubclass(mine, theirs):
                return False
            if mine is not theirs:
                break
        return True


def _dispatch_kl(type_p: type, type_q: type) -> Callable[[Any, Any], Any] | None:
    matches = [pair for pair in _KL_REGISTRY if issubclass(type_p, pair[0]) and issubclass(type_q, pair[1])]
    if not matches:
        return None
    left = min(_Match(*pair) for pair in matches).types
    right = min(_Match(*reversed(pair)) for pair in matches).types
    by_left = _KL_REGISTRY[left[0], left[1]]
    by_right = _KL_REGISTRY[right[1], right[0]]
    if by_left is not by_right:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please register_kl"
            f"({left[0].__name__}, {right[0].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return by_left


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q) = E_p[log p(x) - log q(x)], of the batch's shape.

    ``NotImplementedError`` where no closed form is registered for the two classes.
    """
    pair = type(p), type(q)
    if pair not in _KL_MEMOIZE:
        found = _dispatch_kl(*pair)
        if found is None:
            raise NotImplementedError(
                f"No KL(p || q) is implemented for p type {pair[0].__name__} and q type {pair[1].__name__}"
            )
        _KL_MEMOIZE[pair] = found
    return _KL_MEMOIZE[pair](p, q)  # type: ignore[no-any-return]
