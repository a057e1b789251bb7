"""``__torch_function__``: classes that take over the functions they are given to.

>>> import tesserack as ts
>>> class Metres:
...     @classmethod
...     def __torch_function__(cls, func, types, args=(), kwargs=None):
...         return f"{func.__name__} of metres"
>>> ts.mean(Metres())
'mean of metres'
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tesserack import _native
from tesserack._native import Tensor
from tesserack._tensor.subclass import as_subclass, no_override

__all__ = [
    "BaseTorchFunctionMode",
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "TorchFunctionMode",
    "enable_reentrant_dispatch",
    "get_default_nowrap_functions",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "redispatch_function",
    "resolve_name",
    "wrap_torch_function",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _default(cls: type, func: Any, types: Iterable[type], args: Any = (), kwargs: Any = None) -> Any:
    """Run the function; new tensors become instances of the subclass."""
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
    return result if func in get_default_nowrap_functions() else _convert(result, cls)


def _convert(value: Any, cls: type) -> Any:
    if cls is Tensor:
        return value
    if isinstance(value, Tensor) and not isinstance(value, cls):
        return as_subclass(value, cls)
    if isinstance(value, (tuple, list)):
        items = [_convert(item, cls) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


class DisableTorchFunctionSubclass:
    """Within it, subclasses of Tensor are tensors like any other."""

    def __enter__(self) -> None:
        self._before = _native._overrides_off(True)

    def __exit__(self, *exc: object) -> None:
        _native._overrides_off(self._before)


DisableTorchFunction = DisableTorchFunctionSubclass


# --- modes ---------------------------------------------------------------------------------------------------------


class _State(threading.local):
    def __init__(self) -> None:
        self.modes: list[TorchFunctionMode] = []
        self.outside: list[tuple[TorchFunctionMode, list[TorchFunctionMode]]] = []  # of each that was entered


_state = _State()


def function_modes() -> list[TorchFunctionMode]:
    """This thread's modes, the innermost last."""
    return _state.modes


def _have(modes: list[TorchFunctionMode]) -> None:
    _state.modes = modes
    _native._set_override_modes(len(modes))


class TorchFunctionMode:
    """As a context: every operator that is called comes to ``__torch_function__`` of the mode, whatever it is given."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> TorchFunctionMode:
        _state.outside.append((self, _state.modes))
        _have([*_state.modes, self])
        return self

    def __exit__(self, *exc: object) -> None:
        places = [place for place, (mode, _) in enumerate(_state.outside) if mode is self]
        if places:  # an interruption may have kept a mode within this one from its end
            modes = _state.outside[places[-1]][1]
            del _state.outside[places[-1] :]
            _have(modes)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that runs the function."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _in_mode(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Hands the call to the innermost mode, outside of which the others stay."""
    before = _state.modes
    try:
        _have(before[:-1])
        return before[-1].__torch_function__(func, types, args, kwargs)
    finally:
        _have(before)


# --- calls ---------------------------------------------------------------------------------------------------------


def _in_order(relevant: Iterable[Any]) -> list[Any]:
    """One argument of each class, subclasses before what they derive from."""
    found: list[Any] = []
    for argument in relevant:
        if any(type(argument) is type(other) for other in found):
            continue
        before = next((k for k, other in enumerate(found) if issubclass(type(argument), type(other))), len(found))
        found.insert(before, argument)
    return found


def _dispatch(func: Any, args: Any, kwargs: Any, relevant: list[Any], quiet: bool = False) -> Any:
    """What the first of the arguments that knows the function makes of it.

    If none does ``TypeError``, or ``NotImplemented`` where it is ``quiet``.
    """
    overloaded = _in_order(relevant)
    types = tuple(type(argument) for argument in overloaded)
    if _state.modes:
        result = _in_mode(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    for argument in overloaded:
        result = argument.__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    if quiet:
        return NotImplemented
    names = ", ".join(kind.__name__ for kind in types)
    raise TypeError(
        f"no implementation found for {func.__name__!r} on types that implement __torch_function__: [{names}]"
    )


def _overrides(argument: Any) -> bool:
    kind = type(argument)
    found = getattr(kind, "__torch_function__", None)
    return kind is not Tensor and found is not None and found is not no_override


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode is on or one of the arguments overrides functions, and is to be asked now."""
    return bool(_state.modes or any(map(_overrides, relevant_args))) and _native._asks_overrides()


def has_torch_function_unary(argument: Any) -> bool:
    """Whether a mode is on or the argument overrides functions, and is to be asked now."""
    return has_torch_function((argument,))


def has_torch_function_variadic(*arguments: Any) -> bool:
    """Whether one of the arguments overrides functions."""
    return has_torch_function(arguments)


def handle_torch_function(public_api: Any, relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Have the arguments that override functions make the call."""
    return _dispatch(public_api, args, kwargs, [argument for argument in relevant_args if _overrides(argument)])


def redispatch_function(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Run a function without asking the arguments' classes; those that it calls are asked as ever.

    For ``__torch_function__``, where :class:`DisableTorchFunctionSubclass` would have none of them asked.

    >>> import tesserack as ts
    >>> class Named(ts.Tensor):
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return redispatch_function(func, types, args, kwargs)
    >>> x = ts.ones(2).as_subclass(Named)
    >>> type(ts.add(x, 1)) is ts.Tensor
    add
    True
    """
    before = _native._skip_override(True)
    try:
        return func(*args, **(kwargs or {}))
    finally:
        _native._skip_override(before)


@contextlib.contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """Within it, calls in a ``__torch_dispatch__`` record gradients, as the program's do."""
    before = _native._exclude_key("Autograd", False)
    try:
        yield
    finally:
        _native._exclude_key("Autograd", before)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[_Function], _Function]:
    """Decorator: a function in Python that arguments can override; ``dispatcher`` says which arguments count."""

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = [*dispatcher(*args, **kwargs)]
            asked = has_torch_function(relevant)
            return handle_torch_function(wrapped, relevant, *args, **kwargs) if asked else function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    return decorate


@functools.cache
def get_default_nowrap_functions() -> set[Any]:
    """Functions whose results stay plain tensors for subclasses."""
    return set()


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a Tensor or overrides functions."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether a function is a method of Tensor."""
    return getattr(Tensor, getattr(func, "__name__", ""), None) is func


def resolve_name(f: Any) -> str:
    """The full name of a function of the package."""
    return f"{f.__module__}.{getattr(f, '__qualname__', f.__name__)}"
