"""Which calls have effects, so that they stay where nothing reads what they return."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

from tesserack._native import Operator

__all__ = ["effects", "has_side_effect", "is_impure_call"]

_F = TypeVar("_F", bound=Callable[..., Any])

# Functions whose calls stay though nothing reads what they return.
effects: set[Any] = {operator.setitem}
# Functions that only have effects, by name: they are taken from several places.
_BY_NAME = frozenset({
    "_assert", "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_set_grad_enabled", "_enter_autocast",
    "_exit_autocast", "_record_function_enter", "_record_function_enter_new", "_record_function_exit",
    "sym_constrain_range", "sym_constrain_range_for_size",
})  # fmt: skip
_RANDOM = frozenset({
    "bernoulli", "dropout", "feature_dropout", "multinomial", "normal", "rand", "rand_like", "randint", "randint_like",
    "randn", "randn_like", "randperm", "poisson", "native_dropout", "rrelu", "alpha_dropout",
})  # fmt: skip


# Operators that other ranks wait in: all make every call, whoever reads what it returns.
_COMMUNICATES = "_c10d_functional::"


def has_side_effect(fn: _F) -> _F:
    """Keep calls of a function where nothing reads what it returns. Also a decorator.

    >>> has_side_effect(print) is print
    True
    """
    effects.add(fn)
    return fn


def _of_ours(target: Any) -> bool:
    return isinstance(target, Operator) or str(getattr(target, "__module__", "")).startswith(("torch", "tesserack"))


def is_impure_call(target: Any, kwargs: dict[str, Any], impure_random: bool) -> bool:
    """Whether a call of a function has effects, by what is known of it."""
    try:
        if target in effects:
            return True
    except TypeError:  # what cannot be hashed
        return False
    if getattr(target, "_is_impure", False) is True:
        return True
    if not _of_ours(target):
        return False
    if str(getattr(target, "name", "")).startswith(_COMMUNICATES):
        return True
    name = str(getattr(target, "__name__", "")).partition(".")[0]
    schema = getattr(target, "_schema", None)
    if schema is not None and getattr(schema, "is_mutable", False):
        return True
    return name in _BY_NAME or (impure_random and name in _RANDOM)
