"""The spellings of parameters that PyTorch's built-in functions take for NumPy's sake."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["numpy_names"]

_SYNONYMS = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}
Function = TypeVar("Function", bound=Callable[..., Any])


def numpy_names(function: Function) -> Function:
    """``function`` that also takes ``axis`` for ``dim``, ``x`` for ``input`` and so on, as native operators do.

    >>> import tesserack as ts
    >>> ts.fft.fft(x=ts.ones(2, 1), axis=0).real.tolist()
    [[2.0], [0.0]]
    """
    code = function.__code__
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    known = {spelling: name for spelling, name in _SYNONYMS.items() if name in own and spelling not in own}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for spelling in known.keys() & kwargs.keys():
            name = known[spelling]
            if name in kwargs:
                raise TypeError(f"{function.__name__}() got both {name!r} and {spelling!r}, which are one argument")
            kwargs[name] = kwargs.pop(spelling)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]
