"""PyTorch's switches around compilation. Nothing is compiled: functions run as they are."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tesserack.nn.modules.module import Module, check_compile_options

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "reset",
    "set_stance",
    "substitute_in_graph",
]


class OptimizedModule(Module):
    """What ``compile`` makes of a module: it runs as ``_orig_mod``, whose attributes it shows, and its state dict says
    ``_orig_mod.`` before every name, as files written beside PyTorch's do.
    """

    def __init__(self, mod: Module, dynamo_ctx: Any = None) -> None:
        super().__init__()
        self.add_module("_orig_mod", mod)

    @property
    def training(self) -> bool:
        """Whether the module trains."""
        return bool(self._orig_mod.training)

    @training.setter
    def training(self, value: bool) -> None:
        if "_orig_mod" in self.__dict__.get("_modules", ()):
            self._orig_mod.training = value

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """A call of the module."""
        return self._orig_mod(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        module = self.__dict__.get("_modules", {}).get("_orig_mod")
        if module is None:
            raise AttributeError(f"'OptimizedModule' object has no attribute {name!r}", name=name, obj=self)
        return module if name == "_orig_mod" else getattr(module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        inside = "_orig_mod" in self.__dict__.get("_modules", ()) and not hasattr(type(self), name)
        if inside and name not in self.__dict__:
            setattr(self._orig_mod, name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> Any:
        return type(self), (self._orig_mod,)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """The function itself, which runs as it is, operator by operator; a module within an ``OptimizedModule``, which
    names it ``_orig_mod``, in its state dict too. Without one, a decorator.

    ``RuntimeError`` for ``mode`` together with ``options``.
    """
    check_compile_options(mode=mode, options=options)
    if model is None:
        return lambda function: compile(function, disable=disable)
    return OptimizedModule(model) if isinstance(model, Module) and not disable else model


_state = threading.local()  # what this thread is in the middle of


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Within it this thread exports a program."""
    before, _state.exporting = is_exporting(), True
    try:
        yield
    finally:
        _state.exporting = before


def is_compiling() -> bool:
    """Whether this thread makes a graph of a program, as :func:`is_exporting`."""
    return is_exporting()


def is_dynamo_compiling() -> bool:
    """Always False."""
    return False


def is_exporting() -> bool:
    """Whether this thread is in :func:`tesserack.export.export`."""
    return getattr(_state, "exporting", False)


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function itself; without one, a decorator."""
    return fn if fn is not None else lambda function: function


def allow_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """The function itself."""
    return fn


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[Any], Any]:
    """A decorator that changes nothing."""
    return lambda function: function


def reset() -> None:
    """Nothing: there is nothing compiled to forget."""


def cudagraph_mark_step_begin() -> None:
    """Nothing: there are no graphs to begin."""


def set_stance(stance: str = "default", **options: Any) -> contextlib.AbstractContextManager[None]:
    """A context that changes nothing."""
    return contextlib.nullcontext()


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """Empty."""
    return []
