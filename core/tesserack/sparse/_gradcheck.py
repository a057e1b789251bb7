"""``gradcheck`` for functions of sparse tensors, by way of their values."""

from __future__ import annotations

import functools
from typing import Any

from tesserack import Tensor
from tesserack.sparse._parts import build, coalesce, is_sparse, parts_of, values_of

__all__ = ["as_sparse_gradcheck"]


def as_sparse_gradcheck(gradcheck: Any) -> Any:
    """The check, which takes sparse inputs and results; ``masked`` (True) says that their patterns stay."""

    @functools.wraps(gradcheck)
    def checked(func: Any, inputs: Any, **options: Any) -> Any:
        masked = options.pop("masked", True)
        if not masked:
            raise ValueError("as_sparse_gradcheck: expected masked=True: elements outside of the pattern are not moved")
        given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        leaves = []
        patterns: list[Any] = []
        for value in given:
            if is_sparse(value):
                whole = coalesce(value.detach()) if value.is_sparse else value.detach()
                held = parts_of(whole).values.clone()
                leaves.append(held.requires_grad_() if value.requires_grad else held)
                patterns.append(whole)
            else:
                leaves.append(value)
                patterns.append(None)

        def of_values(*values: Any) -> Any:
            made = [_rebuilt(value, pattern) for value, pattern in zip(values, patterns, strict=True)]
            results = func(*made)
            several = results if isinstance(results, (tuple, list)) else (results,)
            dense = tuple(_values(result) for result in several)
            return dense if isinstance(results, (tuple, list)) else dense[0]

        return gradcheck(of_values, tuple(leaves), **options)

    return checked


def _rebuilt(value: Any, pattern: Any) -> Any:
    if pattern is None:
        return value
    parts = parts_of(pattern)
    return build(parts.layout, parts.indices, value, pattern.shape, parts.dense_dim, parts.coalesced)


def _values(result: Any) -> Any:
    if not (isinstance(result, Tensor) and is_sparse(result)):
        return result
    return values_of(coalesce(result) if result.is_sparse else result)
