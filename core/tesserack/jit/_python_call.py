"""The operator by which graphs call Python: calls by number, for compiled programs and for traced ones."""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

from tesserack import Tensor, _native

__all__ = ["OPERATOR", "operator", "register", "unseen"]

OPERATOR = "tesserack::_python_call"
_by_number: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def register(call: Any) -> int:
    """The number by which :func:`operator` finds a call, as long as somebody holds it."""
    number = next(_numbers)
    _by_number[number] = call
    return number


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Nothing within is a step of a graph."""
    keys = [(key, _native._exclude_key(key, True)) for key in ("Tracer", "Leaf")]
    try:
        yield
    finally:
        for key, before in keys:
            _native._exclude_key(key, before)


def _run(call: Any, number: int, tensors: list[Tensor]) -> list[Tensor]:
    whole = _by_number[number]
    seen = whole._make is not None or whole.computes
    with contextlib.nullcontext() if seen else unseen():
        made: list[Tensor] = whole(*tensors[1:])
    return made


@functools.cache
def operator() -> Any:
    """``operator(number, tensors)`` makes a call, given some tensor and those of its arguments."""
    made = _native._define_operator(
        OPERATOR + "(int number, Tensor[] tensors) -> Tensor[]", _run, "A call of Python.", "tesserack"
    )
    _native._set_kernel(OPERATOR, "Autograd", _run, "tesserack")
    return made
