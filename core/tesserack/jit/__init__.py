"""PyTorch's tracing, and its scripting.

``trace`` runs a function or module once and gives what it did as a program, whose graph can be looked at; it is saved
without the classes it was written in. ``script`` gives back what it is given, which runs as Python, as in PyTorch with
``PYTORCH_JIT=0``, and counts as a ``ScriptModule`` or ``ScriptFunction`` from then on; ``save`` pickles it, and
``load`` must be able to import its classes.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tesserack import _native
from tesserack.jit import _archive
from tesserack.jit._script import (
    Error,
    RecursiveScriptModule,
    ScriptFunction,
    ScriptModule,
    ScriptWarning,
    TracerWarning,
    TracingCheckError,
    checked,
    ignored,
    is_scripted,
    scripted,
    within_script,
)
from tesserack.jit._trace import trace, trace_module
from tesserack.jit._traced import TopLevelTracedModule, TracedModule
from tesserack.nn.modules.module import FALLBACKS

__all__ = [
    "Attribute",
    "CompilationUnit",
    "Error",
    "Final",
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "ScriptWarning",
    "TopLevelTracedModule",
    "TracedModule",
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


# What a scripted module has besides its own attributes.
FALLBACKS["save"] = lambda module: functools.partial(_save_method, module) if is_scripted(module) else None


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
    """What counts as a script, and runs as Python: for a module another one that shares its parameters and buffers,
    whose modes and attributes are its own; a function that calls the given one; a class itself.
    """
    _deprecated("script")
    return scripted(obj)


def script_if_tracing(fn: F) -> F:
    """The function itself: what it does with tensors is traced."""
    return fn


def script_method(fn: F) -> F:
    """A method that takes what it declares to take, and ``RuntimeError`` for other arguments."""
    _deprecated("script_method")
    method: F = checked(fn)
    return method


def ignore(drop: Any = False, **options: Any) -> Any:
    """Decorator, with or without an argument; within the function :func:`is_scripting` is False."""
    return ignored(drop) if callable(drop) else ignored


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
    """Whether the caller runs within what was scripted."""
    return within_script()


def is_tracing() -> bool:
    """Whether this thread runs within :func:`trace`."""
    return bool(_native._is_tracing())


# --- optimisation --------------------------------------------------------------------------------------------------


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    """A traced module with its parameters and buffers as constants, and what follows from constants computed;
    ``preserved_attrs`` names attributes that stay. Other modules are given back. ``RuntimeError`` in training mode, as
    in PyTorch.
    """
    if getattr(mod, "training", False):
        raise RuntimeError("freeze: expected a module in evaluation mode; call eval() first")
    return mod.frozen(list(preserved_attrs or ())) if _isinstance(mod, TopLevelTracedModule) else mod


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """A traced module frozen; other modules in evaluation mode."""
    mod = mod.eval()
    return freeze(mod, other_methods) if _isinstance(mod, TopLevelTracedModule) else mod


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
    if future is None:
        raise RuntimeError("Future can't be None")
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
    return scripted(_archive.read(f, map_location, _extra_files))


_drop = functools.partial(ignore, True)
