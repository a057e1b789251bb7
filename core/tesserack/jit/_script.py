"""What counts as a script, and what PyTorch's programs catch and filter."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import types
import warnings
import weakref
from typing import Any

from tesserack.nn.modules.module import FALLBACKS, Module

__all__ = [
    "Error",
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "ScriptWarning",
    "TracerWarning",
    "TracingCheckError",
    "at_home",
    "is_scripted",
    "scripted",
]

_isinstance = isinstance


class Error(RuntimeError):
    """What a scripted program raises in PyTorch."""


class TracingCheckError(Exception):
    """A second trace of the program differs from the first: what it does depends on more than its inputs."""

    def __init__(
        self, graph_diff_error: str | None, tensor_compare_error: str | None, extra_msg: str | None = None
    ) -> None:
        parts = ["Tracing failed sanity checks!"]
        if extra_msg:
            parts.append(extra_msg)
        if graph_diff_error:
            parts.append(f"ERROR: Graphs differed across invocations!\n{graph_diff_error}")
        if tensor_compare_error:
            parts.append(
                "ERROR: Tensor-valued Constant nodes differed in value across invocations. This often indicates that "
                f"the tracer has encountered untraceable code.\n{tensor_compare_error}"
            )
        self.message = "\n".join(parts)
        super().__init__(self.message)


class ScriptWarning(Warning):
    """The category of PyTorch's warnings about scripts, for filters; nothing here warns so."""


class TracerWarning(Warning):
    """A trace may not be what the program is: Python turned a tensor into a number, or its results vary."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Let those that the library itself causes pass."""
        warnings.filterwarnings("ignore", category=TracerWarning, module="torch.(?!jit)")


class _Scripted(type(Module)):  # type: ignore[misc]
    """Classes that what was scripted counts as an instance of, beside instances of their own."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return bool(super().__instancecheck__(instance)) or (
            cls in (ScriptModule, RecursiveScriptModule) and is_scripted(instance)
        )


class ScriptModule(Module, metaclass=_Scripted):
    """A base that modules may have, which adds nothing; modules given to ``script`` or ``trace`` count as instances.

    >>> import tesserack as ts
    >>> layer = ts.nn.Linear(1, 1)
    >>> _isinstance(layer, ScriptModule), _isinstance(ts.jit.script(layer), ScriptModule)
    (False, True)
    """


class RecursiveScriptModule(ScriptModule):
    """The class of such modules in PyTorch."""


class _ScriptedFunctions(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or _functions.get(id(instance)) is instance


class ScriptFunction(metaclass=_ScriptedFunctions):
    """Functions given to ``script`` or ``trace`` count as its instances."""


def at_home(function: Any) -> Any:
    """What stands where a function's names say that it does; None where there is nothing."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found


class _Function(ScriptFunction):
    """A function of Python's that was scripted: one that a class may hold without its becoming a method."""

    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]

    def __reduce__(self) -> Any:
        function: Any = self.__wrapped__  # type: ignore[attr-defined]
        # Where it was decorated the name is its own, elsewhere the function's.
        return function.__qualname__ if at_home(function) is self else (scripted, (function,))


_MARK = "_tesserack_scripted"
_functions: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def is_scripted(obj: Any) -> bool:
    return _MARK in getattr(obj, "__dict__", ())


def failed_assertion(message: str) -> Exception | None:
    """What a false ``_assert`` raises below a scripted module or function; None where nothing scripted calls."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code is _Function.__call__.__code__ or is_scripted(frame.f_locals.get("self")):
            return Error(f"RuntimeError: AssertionError: {message}")
        frame = frame.f_back
    return None


def scripted(obj: Any) -> Any:
    """The object, which counts as a script from now on, as do a module's parts; of a function one that calls it."""
    if type(obj) is types.FunctionType:
        obj = _Function(obj)
    if _isinstance(obj, Module):
        parts = list(obj.modules())
        if any(getattr(part, "has_uninitialized_params", bool)() for part in parts):
            raise RuntimeError("jit.script: expected no uninitialized parameters or buffers; run a forward pass first")
        for part in parts:
            part.__dict__[_MARK] = True
    elif callable(obj) and not _isinstance(obj, type):
        with contextlib.suppress(TypeError):  # what has no weak references
            _functions[id(obj)] = obj
    return obj


# What a scripted module has besides its own attributes.
FALLBACKS["original_name"] = lambda module: type(module).__name__ if is_scripted(module) else None
