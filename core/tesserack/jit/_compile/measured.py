"""Modules of a program, compiled as they are met, and what that gains: calls by turns as Python and as graphs."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tesserack import Tensor, is_grad_enabled
from tesserack.jit._compile.compiled import Compiled
from tesserack.nn.modules.module import Module
from tesserack.utils import _pytree as pytree

__all__ = ["Measured", "watching"]

TURNS = 32  # calls of one kind that are by turns plain and by graph; later ones are by graph
_inside = threading.local()


@dataclass
class Times:
    """Seconds of calls with arguments of the same shapes, and from one call's begin to the next one's, while both run
    by turns: what else the machine does slows both then. ``later`` counts the calls by graph after that.
    """

    plain: list[float] = field(default_factory=list)
    graph: list[float] = field(default_factory=list)
    plain_steps: list[float] = field(default_factory=list)
    graph_steps: list[float] = field(default_factory=list)
    later: int = 0

    def gained(self) -> float:
        """Seconds that calls by graph took less than as many plain ones would have; 0 where only one kind is known."""
        if not self.plain or not self.graph:
            return 0.0
        return (statistics.median(self.plain) - statistics.median(self.graph)) * (len(self.graph) + self.later)


class Measured:
    """The calls of a module that is called by none: compiled, timed, and its results those of Python bit by bit."""

    def __init__(self, module: Module) -> None:
        def call(*args: Any, **kwargs: Any) -> Any:
            return module._call_plainly(args, kwargs)

        self.name = type(module).__name__
        self.compiled = Compiled(call, [module], "inductor", False, {})
        self.calls = 0
        self.capturing = 0.0  # seconds of the calls that made graphs
        self.times: dict[Any, Times] = {}
        self._last: tuple[float, Any, bool] | None = None

    def __reduce__(self) -> Any:
        return _nothing, ()  # a copy of the module is met anew

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if getattr(_inside, "call", False):
            return self.compiled.function(*args, **kwargs)
        kind = _kind(args, kwargs)
        compiled, times = self.compiled, self.times.setdefault(kind, Times())
        known = not compiled.plain and bool(compiled.known.replays.find(args, kwargs))
        turns = min(len(times.plain), len(times.graph)) < TURNS // 2
        plain = compiled.plain or (known and turns and len(times.plain) <= len(times.graph))
        graphs = len(compiled.places)
        _inside.call = True
        begin = time.perf_counter()
        try:
            result = (compiled.function if plain else compiled)(*args, **kwargs)
        finally:
            _inside.call = False
        took = time.perf_counter() - begin
        self.calls += 1
        if len(compiled.places) > graphs:
            self.capturing += took
            self._last = None
        elif known and not plain and not turns:
            times.later += 1
            self._last = None
        else:
            self._note(times, kind, begin, took, known and not plain)
        return result

    def _note(self, times: Times, kind: Any, begin: float, took: float, by_graph: bool) -> None:
        if self._last is not None and self._last[1] == kind:
            steps = times.graph_steps if self._last[2] else times.plain_steps
            steps.append(begin - self._last[0])
        (times.graph if by_graph else times.plain).append(took)
        self._last = begin, kind, by_graph

    def whole(self) -> Times | None:
        """The times of the kind of calls that took longest, of those that are known both ways; None without such."""
        both = [times for times in self.times.values() if times.plain and times.graph]
        return max(both, key=lambda times: statistics.median(times.plain) * times.later, default=None)

    def gained(self) -> float:
        """Seconds, over all kinds of calls, without those that making graphs took."""
        return sum(times.gained() for times in self.times.values())

    def reason(self) -> str:
        """Why calls run as Python; empty where they do not."""
        if not self.compiled.plain:
            return ""
        told = [*self.compiled.reasons, *self.compiled.notes]
        return told[-1] if told else "it was not proved that a graph repeats it"


def _nothing() -> None:
    return None


def _kind(args: Any, kwargs: Any) -> Any:
    leaves = pytree.tree_leaves((args, kwargs))
    return is_grad_enabled(), tuple(tuple(x.shape) for x in leaves if isinstance(x, Tensor))


def _is_free(module: Module) -> bool:
    """Whether neither the program nor this has compiled the module."""
    return module.__dict__.get("_compiled_call_impl") is None and "_orig_mod" not in module._modules


@contextlib.contextmanager
def watching() -> Iterator[list[Measured]]:
    """Within it every module that is made and then called by no other module is compiled, and its calls are timed.

    The list is what was met, in order of the first calls.
    """
    met: list[Measured] = []
    call_hooked, init, set_state = Module._call_hooked, Module.__init__, Module.__setstate__

    def watched(self: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # One that was made before comes here by a hook on all modules, though it be gone since.
        if getattr(_inside, "call", False) or "_hooked" not in self.__dict__:
            return call_hooked(self, args, kwargs)
        for part in self.modules():  # what it calls is part of its graphs
            if not part._any_hooks() and _is_free(part):
                part.__dict__.pop("_hooked", None)
        if not _is_free(self):
            return call_hooked(self, args, kwargs)
        met.append(Measured(self))
        self.__dict__.update(_hooked=True, _compiled_call_impl=met[-1])
        return met[-1](*args, **kwargs)

    def marked(original: Callable[..., None]) -> Callable[..., None]:
        def begin(self: Module, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            self.__dict__["_hooked"] = True

        return begin

    replaced = {"_call_hooked": watched, "__init__": marked(init), "__setstate__": marked(set_state)}
    for name, function in replaced.items():
        setattr(Module, name, function)
    try:
        yield met
    finally:
        del Module._call_hooked  # the mixin's shows again
        Module.__init__, Module.__setstate__ = init, set_state  # type: ignore[method-assign]
