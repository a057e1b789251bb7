"""Functions with graphs of their runs: by what these depend on, and plain Python wherever that is not proved."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from tesserack.jit._compile import capture as _capture
from tesserack.jit._compile.backends import PLAIN, lookup_backend
from tesserack.jit._compile.errors import BackendCompilerFailed, NotProved, Unsupported
from tesserack.jit._compile.stance import current as current_stance
from tesserack.utils import _pytree as pytree

__all__ = ["Compiled", "Entry", "config", "reset"]

_all: weakref.WeakSet[Compiled] = weakref.WeakSet()
config = {"recompile_limit": 8, "attempts": 3}


class Entry(NamedTuple):
    """A graph, what a compiler made of it, and what both depend on."""

    capture: Any
    call: Callable[..., Any]


class Compiled:
    """A function, or a module's call, run by a compiler's graphs. ``roots`` are the objects that it begins from."""

    def __init__(
        self, function: Callable[..., Any], roots: list[Any], backend: Any, fullgraph: bool, options: dict[str, Any]
    ) -> None:
        self.function, self.roots, self.backend, self.fullgraph = function, roots, backend, fullgraph
        self.options = options
        self.forget()
        _all.add(self)

    def __reduce__(self) -> Any:
        return _nothing, ()  # a copy of the module is compiled anew

    def forget(self) -> None:
        """Nothing is known of runs."""
        self.entries: dict[Any, list[Entry]] = {}
        self.reasons: list[str] = []
        self.plain = False
        self._attempts = 0
        self._seeds: dict[Any, Any] = {}
        self._count = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        stance = current_stance()
        name = stance.stance
        if self.plain or name == "force_eager" or _capture.compiling():
            return self.function(*args, **kwargs)
        try:
            inputs = _capture.Inputs.of(args, kwargs, keep=False)
        except NotProved as error:
            return self._plain_from_now(error, args, kwargs)
        entries = self.entries.get(inputs.token, [])
        for entry in entries:
            if entry.capture.dependencies.hold():
                return self._replayed(entry, inputs.tensors)
        if name == "fail_on_recompile" and self._count:
            raise RuntimeError(
                "Detected recompile when torch.compile stance is 'fail_on_recompile': no graph fits these arguments"
            )
        if name == "eager_on_recompile" or self._count >= config["recompile_limit"]:
            return self.function(*args, **kwargs)
        return self._first(inputs.token, args, kwargs)

    def _first(self, token: Any, args: Any, kwargs: Any) -> Any:
        """The result of a run that is captured; of the compiler's, where running twice changes nothing."""
        result, found = _capture.run(self.function, self.roots, args, kwargs, self._seeds)
        if isinstance(found, NotProved):
            return self._not_captured(found, result)
        self._count += 1
        inputs = _capture.Inputs.of(args, kwargs)
        entry = Entry(found, self._lowered(found, inputs.tensors))
        self.entries.setdefault(token, []).append(entry)
        return result if found.changed else self._replayed(entry, inputs.tensors)

    def _lowered(self, found: Any, tensors: list[Any]) -> Callable[..., Any]:
        backend = lookup_backend(current_stance().force_backend or self.backend)
        try:
            made = backend(found.module, [*tensors], **self.options)
        except Exception as error:
            raise BackendCompilerFailed(backend, error) from error
        if not callable(made):
            raise BackendCompilerFailed(backend, TypeError(f"expected a function back, got {type(made).__name__}"))
        return made  # type: ignore[no-any-return]

    @staticmethod
    def _replayed(entry: Entry, tensors: list[Any]) -> Any:
        outputs = entry.call(*tensors)
        sources = {"output": outputs if isinstance(outputs, (list, tuple)) else [outputs], "input": tensors}
        capture = entry.capture
        leaves = [what if kind == "value" else sources[kind][what] for kind, what in capture.results]
        return pytree.tree_unflatten(leaves, capture.spec)

    def _plain_from_now(self, error: NotProved, args: Any, kwargs: Any) -> Any:
        self._note(error)
        return self.function(*args, **kwargs)

    def _not_captured(self, error: NotProved, result: Any) -> Any:
        self._attempts += 1
        if error.passing and self._attempts < config["attempts"]:
            return result
        self._note(error)
        return result

    def _note(self, error: NotProved) -> None:
        self.reasons.append(error.reason)
        if self.fullgraph:
            raise Unsupported(
                f"compile: expected a function that is one graph (fullgraph=True), but {error.reason}; leave fullgraph "
                "out to have it run as plain Python"
            )
        self.plain = True


def _nothing() -> None:
    return None


def reset() -> None:
    """Have every compiled function forget its graphs."""
    for compiled in [*_all]:
        compiled.forget()


def wrap(function: Callable[..., Any], backend: Any, fullgraph: bool, options: dict[str, Any]) -> Callable[..., Any]:
    """A function of the same name and signature that a compiler runs; plain Python's where it makes no difference."""
    if backend in PLAIN and not fullgraph:
        return function
    lookup_backend(backend)
    compiled = Compiled(function, [function], backend, fullgraph, options)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    call.__dict__.update(_compiled=compiled, _torchdynamo_orig_callable=function)
    return call
