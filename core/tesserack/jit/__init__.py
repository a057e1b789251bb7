"""PyTorch's scripting, run as Python: what PyTorch itself does with ``PYTORCH_JIT=0``.

``script`` and ``trace`` give back what they are given, which then runs operator by operator, and counts as a
``ScriptModule`` or ``ScriptFunction`` from then on. ``save`` pickles it: ``load`` must be able to import its classes.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tesserack.jit import _archive
from tesserack.nn.modules.module import FALLBACKS, Module

__all__ = [
    "Attribute",
    "CompilationUnit",
    "Error",
    "Final",
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "ScriptWarning",
    "TracerWarning",
    "TracingCheckError",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "fork",
    "freeze",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "onednn_fusion_enabled",
    "optimize_for_inference",
    "optimized_execution",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "set_fusion_strategy",
    "strict_fusion",
    "trace",
    "trace_module",
    "unused",
    "wait",
]

F = TypeVar("F", bound=Callable[..., Any])
_isinstance = isinstance


class Error(RuntimeError):
    """What a scripted program raises in PyTorch."""


class TracingCheckError(Exception):
    """What a trace that does not repeat the function raises in PyTorch; here nothing is traced."""


class ScriptWarning(Warning):
    """The category of PyTorch's warnings about scripts, for filters; nothing here warns so."""


class TracerWarning(Warning):
    """The category of PyTorch's warnings about traces, for filters; nothing here warns so."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Let those that the library itself causes pass."""
        warnings.filterwarnings("ignore", category=TracerWarning, module="torch.(?!jit)")


class _Scripted(type(Module)):  # type: ignore[misc]
    """Classes that what was scripted counts as an instance of, beside instances of their own."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return bool(super().__instancecheck__(instance)) or (
            cls in (ScriptModule, RecursiveScriptModule) and _is_scripted(instance)
        )


class ScriptModule(Module, metaclass=_Scripted):
    """A base that modules may have, which adds nothing; modules given to ``script`` or ``trace`` count as instances.

    >>> import tesserack as ts
    >>> layer = ts.nn.Linear(1, 1)
    >>> _isinstance(layer, ScriptModule), _isinstance(script(layer), ScriptModule)
    (False, True)
    """


class RecursiveScriptModule(ScriptModule):
    """The class of such modules in PyTorch."""


class _ScriptedFunctions(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or _functions.get(id(instance)) is instance


class ScriptFunction(metaclass=_ScriptedFunctions):
    """Functions given to ``script`` or ``trace`` count as its instances."""


_MARK = "_tesserack_scripted"
_functions: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def _is_scripted(obj: Any) -> bool:
    return _MARK in getattr(obj, "__dict__", ())


def _scripted(obj: Any) -> Any:
    """The object, which counts as a script from now on; a module's parts, too."""
    if _isinstance(obj, Module):
        for part in obj.modules():
            part.__dict__[_MARK] = True
    elif callable(obj) and not _isinstance(obj, type):
        with contextlib.suppress(TypeError):  # what has no weak references
            _functions[id(obj)] = obj
    return obj


# What a scripted module has besides its own attributes.
FALLBACKS["save"] = lambda module: functools.partial(_save_method, module) if _is_scripted(module) else None
FALLBACKS["original_name"] = lambda module: type(module).__name__ if _is_scripted(module) else None


def _save_method(module: Any, f: Any, _extra_files: Any = None) -> None:
    save(module, f, _extra_files)


class CompilationUnit:
    """Functions given as source text in PyTorch's script language. ``NotImplementedError`` when made with text."""

    def __init__(self, lang: str | None = None, **options: Any) -> None:
        if lang is not None:
            raise NotImplementedError("jit: source text is not compiled; define the functions in Python")


class Attribute:
    """A value with the type it is to have in a script module."""

    def __init__(self, value: Any, type: Any) -> None:
        self.value, self.type = value, type


def _deprecated(name: str, instead: str = "switch to `torch.compile` or `torch.export`") -> None:
    """PyTorch's warning, which it gives with its compiler switched off too."""
    warnings.warn(f"`torch.jit.{name}` is deprecated. Please {instead}.", DeprecationWarning, stacklevel=2)


# --- marks on functions --------------------------------------------------------------------------------------------


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """The function, module or class itself, which runs as Python."""
    _deprecated("script")
    return _scripted(obj)


def trace(func: Any, example_inputs: Any = None, *args: Any, **options: Any) -> Any:
    """The function or module itself, which runs as Python; it is not called."""
    _deprecated("trace")
    return _scripted(func)


def trace_module(mod: Any, inputs: Any, *args: Any, **options: Any) -> Any:
    """The module itself."""
    _deprecated("trace_method")
    return _scripted(mod)


def script_if_tracing(fn: F) -> F:
    """The function itself: nothing is ever traced."""
    return fn


def script_method(fn: F) -> F:
    """The method itself."""
    _deprecated("script_method")
    return fn


def ignore(drop: Any = False, **options: Any) -> Any:
    """Decorator, with or without an argument; the function runs as Python in any case."""
    return drop if callable(drop) else lambda function: function


def unused(fn: F) -> F:
    """The function itself."""
    return fn


def export(fn: F) -> F:
    """The method itself."""
    return fn


def interface(obj: Any) -> Any:
    """The class itself. ``RuntimeError`` for what is none."""
    _deprecated("interface", "use `torch.compile` instead")
    if not _isinstance(obj, type):
        raise RuntimeError("jit.interface: expected a class, got " + type(obj).__name__)
    return obj


def _overload(func: F) -> F:
    return func


def _overload_method(func: F) -> F:
    return func


def _script_if_tracing(fn: F) -> F:
    return fn


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value itself."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether the object is of the type; of generic types the origin counts."""
    kinds = target_type if _isinstance(target_type, tuple) else (target_type,)
    return any(_isinstance(obj, getattr(kind, "__origin__", kind)) for kind in kinds)


def is_scripting() -> bool:
    """Always False."""
    return False


def is_tracing() -> bool:
    """Always False."""
    return False


# --- optimisation --------------------------------------------------------------------------------------------------


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    """The module itself. ``RuntimeError`` in training mode, as in PyTorch."""
    if getattr(mod, "training", False):
        raise RuntimeError("freeze: expected a module in evaluation mode; call eval() first")
    return mod


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """The module in evaluation mode."""
    return mod.eval()


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Any:
    """A context that changes nothing."""
    yield


class strict_fusion(contextlib.ContextDecorator):
    """A context that changes nothing."""

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, *exc: object) -> None:
        """Nothing."""


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Nothing: there is no fusing. Returns no former strategy."""
    return []


def enable_onednn_fusion(enabled: bool) -> None:
    """Nothing: there is no fusing."""


def onednn_fusion_enabled() -> bool:
    """Always False."""
    return False


# --- work in the background ----------------------------------------------------------------------------------------


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A future of ``func(*args)``, which is called at once, as PyTorch does outside of scripts."""
    from tesserack.utils.futures import Future

    future: Future[Any] = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Any) -> Any:
    """The result of a future."""
    return future.wait()


# --- files ---------------------------------------------------------------------------------------------------------


def save(m: Any, f: Any, _extra_files: Any = None) -> None:
    """Write a module or function, by pickle, with ``_extra_files``, texts or bytes by name, beside it.

    ``f``: a path or an open file. ``RuntimeError`` for what does not pickle. PyTorch does not open such files, for
    they hold no program.

    >>> import io, tesserack as ts
    >>> file, layer = io.BytesIO(), ts.nn.Linear(2, 3)
    >>> save(script(layer), file)
    >>> load(file)(ts.ones(1, 2)).equal(layer(ts.ones(1, 2)))
    True
    """
    _archive.write(m, f, _extra_files)


def load(f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False) -> Any:
    """What :func:`save` wrote, on the device ``map_location``, or on those it was on; contents of ``_extra_files`` are
    put into that dict. Like every pickle, a file may run what it says: only for files that are trusted.

    ``NotImplementedError`` for archives of PyTorch, which hold programs in a language of its own; ``RuntimeError`` for
    a class or function named in the file that cannot be imported.
    """
    return _scripted(_archive.read(f, map_location, _extra_files))


_drop = functools.partial(ignore, True)
