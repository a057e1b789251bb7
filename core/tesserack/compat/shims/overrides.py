"""``torch.overrides``: which functions ask ``__torch_function__``, and how each could be overridden."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tesserack import _native
from tesserack._native import Operator, OperatorMethod, Tensor
from tesserack.compat import _facade
from tesserack.compat._overridable import asks

__all__ = ["get_ignored_functions", "get_overridable_functions", "get_testing_overrides", "resolve_name"]

_MODULES = ("torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special")
_Functions = dict[Any, list[Callable[..., Any]]]


@functools.cache
def _index() -> tuple[_Functions, dict[Any, str]]:
    """The functions that ask, by where they are, and the full names of all."""
    found: _Functions = {}
    names: dict[Any, str] = {}
    for module in map(_facade.get, _MODULES):
        for name in module.__all__:
            value = getattr(module, name, None)
            if not callable(value) or isinstance(value, type):
                continue
            names.setdefault(value, f"{module.__name__}.{name}")
            if name[0].islower() and not name.endswith("_") and _asks(value):
                found.setdefault(module, []).append(value)
    for name in dir(Tensor):
        value = getattr(Tensor, name)
        if callable(value) and getattr(object, name, None) is not value:
            names.setdefault(value, f"torch.Tensor.{name}")
            if isinstance(value, (Operator, OperatorMethod)):
                found.setdefault(Tensor, []).append(value)
    return found, names


@functools.cache
def _of_tensors() -> frozenset[str]:
    """The operators that are given tensors; others make them."""
    records = _native._operators()
    return frozenset(r["base"] for r in records if "Tensor" in r["schema"].partition("(")[2].rpartition(" -> ")[0])


def _asks(function: Any) -> bool:
    """Whether there is something to ask in what the function has to be given, and it does."""
    if isinstance(function, Operator):
        return function.__name__ in _of_tensors()
    needed = inspect.signature(function).parameters.values() if asks(function) else ()
    return any(each.default is each.empty for each in needed)


def get_overridable_functions() -> _Functions:
    """The functions that ask the classes of what they are given, by module, and the methods of Tensor."""
    return {place: [*functions] for place, functions in _index()[0].items()}


def get_ignored_functions() -> set[Callable[..., Any]]:
    """Functions of these modules and methods that never ask."""
    asked = {function for functions in _index()[0].values() for function in functions}
    return {function for function in _index()[1] if function not in asked}


@functools.cache
def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """For every function that asks, one that takes the same arguments and returns -1."""
    return {function: _stand_in(function) for functions in _index()[0].values() for function in functions}


def _stand_in(function: Any) -> Callable[..., Any]:
    def override(*args: Any, **kwargs: Any) -> int:
        return -1

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return override
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    override.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=bare, return_annotation=inspect.Signature.empty
    )
    return override


def resolve_name(f: Any) -> str | None:
    """The full name of a function or method; of an overload of an operator its own; None for others."""
    if type(f).__name__ in ("OpOverload", "OpOverloadPacket"):
        return str(f)
    return _index()[1].get(f)
