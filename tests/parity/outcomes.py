"""What a call comes to, in words that both libraries share: its result, the kind of its error, what it warns of."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tesserack as ts
import torch


def error_of(call: Callable[[], Any], message: bool = False) -> Any:
    """The result, or the kind of the error, or its first paragraph."""
    try:
        return call()
    except Exception as error:
        head = re.sub(r"tesserack|torch|; give tensors.*|\.$", "", str(error))
        return f"{type(error).__name__}: {head}" if message else type(error).__name__


def builtin_error_of(call: Callable[[], Any]) -> Any:
    """The result, or the builtin kind of the error."""
    try:
        return call()
    except Exception as error:
        return next(k.__name__ for k in type(error).__mro__ if k.__module__ == "builtins")


def warned(call: Callable[[], Any]) -> list[str]:
    """Categories of what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return sorted({w.category.__name__ for w in caught})


def warned_always(m: Any, call: Callable[[], Any]) -> list[str]:
    """The same, of what is said once in a process too; what is deprecated apart."""
    m.set_warn_always(True)
    try:
        found = warned(call)
    finally:
        m.set_warn_always(False)
    return [name for name in found if name != "DeprecationWarning"]


def detached(result: Any) -> Any:
    """Without graphs, in tuples too."""
    if isinstance(result, tuple):
        return tuple(detached(part) for part in result)
    return result.detach() if hasattr(result, "detach") else result


def drawn(m: Any, *shape: int, dtype: str = "float64", seed: int = 0) -> Any:
    """Normal numbers that require a gradient."""
    values = np.random.default_rng(seed).standard_normal(shape)
    return m.tensor(values).to(getattr(m, dtype)).requires_grad_()


def numbers(tensors: Any) -> list[Any]:
    """In float64, whatever they were."""
    return [np.asarray(t.detach().to(dtype=t.new_zeros(0).double().dtype).numpy()) for t in tensors]


def same(call: Any, rtol: float = 1e-6, atol: float = 1e-7) -> None:
    """What ``call`` returns with either library: tensors of one shape, dtype and value."""
    ours, theirs = call(ts), call(torch)
    assert [str(t.dtype).rpartition(".")[2] for t in ours] == [str(t.dtype).rpartition(".")[2] for t in theirs]
    for k, (a, b) in enumerate(zip(numbers(ours), numbers(theirs), strict=True)):
        np.testing.assert_allclose(a, b, rtol, atol, err_msg=f"result {k}")
