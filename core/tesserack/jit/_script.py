"""What counts as a script, and what PyTorch's programs catch and filter."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import sys
import types
import warnings
import weakref
from collections import OrderedDict
from typing import Any

from tesserack.jit._declared import Declared
from tesserack.nn.modules._registry import Registry
from tesserack.nn.modules._where import LOOKS
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
    "checked",
    "ignored",
    "is_scripted",
    "scripted",
    "within_script",
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
        self._tesserack_declared: Declared | None = None  # found at the first call, when all names are defined

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        declared = self._tesserack_declared
        if declared is None:
            declared = self._tesserack_declared = Declared(self.__wrapped__)  # type: ignore[attr-defined]
        if refused := declared.refusal(args, kwargs):
            raise RuntimeError(refused)
        return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]

    def __reduce__(self) -> Any:
        function: Any = self.__wrapped__  # type: ignore[attr-defined]
        # Where it was decorated the name is its own, elsewhere the function's.
        return function.__qualname__ if at_home(function) is self else (scripted, (function,))


_MARK = "_tesserack_scripted"
_made = False  # whether there is any script
_ignored: set[types.CodeType] = set()  # what runs as Python below scripts too
_functions: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def checked(method: Any) -> Any:
    """The method, whose arguments are looked at first."""
    declared: list[Declared] = []

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not declared:
            declared.append(Declared(method, skipped=1))
        if refused := declared[0].refusal(args, kwargs):
            raise RuntimeError(refused)
        return method(self, *args, **kwargs)

    return call


def is_scripted(obj: Any) -> bool:
    return _MARK in getattr(obj, "__dict__", ())


def ignored(function: Any) -> Any:
    """The function, within which no script runs."""
    if _isinstance(function, types.FunctionType):
        _ignored.add(function.__code__)
    return function


def within_script() -> bool:
    """Whether something scripted calls, with nothing ignored between."""
    frame = inspect.currentframe() if _made else None
    while frame is not None:
        if frame.f_code in _ignored:
            return False
        if frame.f_code is _Function.__call__.__code__ or is_scripted(frame.f_locals.get("self")):
            return True
        frame = frame.f_back
    return False


def failed_assertion(message: str) -> Exception | None:
    """What a false ``_assert`` raises below a scripted module or function; None where nothing scripted calls."""
    return Error(f"RuntimeError: AssertionError: {message}") if within_script() else None


def _own(value: Any, twins: dict[int, Any]) -> Any:
    """What an attribute is to the twins of modules: they in place of what they stand for, containers of their own."""
    if id(value) in twins:
        return twins[id(value)]
    kind: Any = type(value)
    made: Any
    if kind is types.MethodType:
        return types.MethodType(value.__func__, _own(value.__self__, twins))
    if kind in (dict, OrderedDict):
        twins[id(value)] = made = kind()
        made.update((name, _own(item, twins)) for name, item in value.items())
        return made
    if kind is list:
        twins[id(value)] = made = []
        made.extend(_own(item, twins) for item in value)
        return made
    return kind(_own(item, twins) for item in value) if kind is tuple else value


def _shell(module: Module) -> Module:
    """A module of the same class with the same attributes; some, as parametrized ones, refuse to be copied."""
    if hasattr(type(module), "__copy__"):
        return copy.copy(module)
    made: Module = object.__new__(type(module))
    made.__dict__.update(module.__dict__)
    return made


def _twin(module: Module) -> Module:
    """A module that shares the tensors of another, with modes, parts and other attributes of its own."""
    parts = list(module.modules())
    if any(getattr(part, "has_uninitialized_params", bool)() for part in parts):
        raise RuntimeError("jit.script: expected no uninitialized parameters or buffers; run a forward pass first")
    twins: dict[int, Any] = {id(part): part if is_scripted(part) else _shell(part) for part in parts}
    for part in parts:
        twin = twins[id(part)]
        if twin is not part:
            for name, value in list(twin.__dict__.items()):
                if _isinstance(value, Registry):
                    twin.__dict__[name] = Registry(twin, {key: _own(item, twins) for key, item in value.items()})
                else:
                    twin.__dict__[name] = _own(value, twins)
            twin.__dict__[_MARK] = True
    result: Module = twins[id(module)]
    return result


def scripted(obj: Any) -> Any:
    """What counts as a script: of a module one that shares its tensors, of a function one that calls it, else ``obj``.

    Modes and attributes of the two modules are their own from then on, as in PyTorch.
    """
    global _made
    _made = True
    if _isinstance(obj, Module):
        return obj if _isinstance(obj, ScriptModule) else _twin(obj)
    if type(obj) is types.FunctionType:
        obj = _Function(obj)
    if callable(obj) and not _isinstance(obj, type):
        with contextlib.suppress(TypeError):  # what has no weak references
            _functions[id(obj)] = obj
    return obj


def _refuse(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> None:
    """Raises PyTorch's error where a scripted module failed as it was given what it does not take."""
    within = hasattr(error, "_tesserack_refused")  # of a part, which PyTorch does not come to
    if _isinstance(module, ScriptModule) and (within or not _isinstance(error, RuntimeError)):
        refused = Declared(type(module).forward, skipped=1).refusal(args, kwargs)
        if refused:
            told = RuntimeError(refused)
            told._tesserack_refused = True  # type: ignore[attr-defined]
            raise told from (error.__cause__ if within else error)


LOOKS.append(_refuse)
# What a scripted module has besides its own attributes.
FALLBACKS["original_name"] = lambda module: type(module).__name__ if is_scripted(module) else None
