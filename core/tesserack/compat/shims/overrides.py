"""``torch.overrides``: which functions ask ``__torch_function__``, and how each could be overridden."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tesserack import _native
from tesserack._native import Operator, OperatorMethod, Tensor
from tesserack.compat import _facade, _names
from tesserack.compat._overridable import asks

__all__ = ["get_ignored_functions", "get_overridable_functions", "get_testing_overrides", "resolve_name"]

_MODULES = ("torch", "torch.functional", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special")
_PARTS = frozenset(("_backward_hooks", "_base", "_cdata", "_grad", "_grad_fn", "_version"))  # attributes of tensors
# Methods that nobody is asked about: what makes tensors, and what Python itself calls.
_NOT_ASKED = frozenset(
    (
        "__class__", "__del__", "__delattr__", "__delitem__", "__dir__", "__getattribute__", "__getstate__", "__hash__",
        "__init__", "__init_subclass__", "__iter__", "__new__", "__setattr__", "__subclasshook__",
        "__torch_dispatch__", "__torch_function__", "__weakref__", "__dict__", "as_subclass", "eig", "lstsq", "new",
        "new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros", "reinforce", "solve",
        "stride", "symeig", "to_padded_tensor", "to_sparse_bsc", "to_sparse_bsr", "to_sparse_coo", "to_sparse_csc",
        "to_sparse_csr", "unflatten",
    )
)  # fmt: skip
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
            if module.__name__ == "torch.functional":
                names[value] = f"{module.__name__}.{name}"  # of torch too, but defined here
            names.setdefault(value, f"{module.__name__}.{name}")
            if name[0].islower() and not name.endswith("_") and _asks(value):
                found.setdefault(module, []).append(value)
    for name in dir(Tensor):
        value = getattr(Tensor, name)
        if getattr(object, name, None) is value or not _hashable(value):
            continue
        if callable(value):
            names.setdefault(value, f"torch.Tensor.{name}")
            if _is_asked(name, value):
                found.setdefault(Tensor, []).append(value)
        elif hasattr(value, "__get__") and _is_asked(name, value):
            names.setdefault(value.__get__, f"torch.Tensor.{name}.__get__")
            names.setdefault(value.__set__, f"torch.Tensor.{name}.__set__")
            found.setdefault(value, []).append(value.__get__)
    return found, names


def _hashable(value: Any) -> bool:
    """Whether it can be looked up."""
    return getattr(type(value), "__hash__", None) is not None


def _is_asked(name: str, value: Any) -> bool:
    """Whether a name of Tensor's is one that PyTorch lists."""
    if name in _NOT_ASKED:
        return False
    if name.startswith("_"):
        return name.endswith("__") or name in _PARTS or isinstance(value, (Operator, OperatorMethod))
    return isinstance(value, (Operator, OperatorMethod)) or name in _names.names("torch.Tensor")


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
