"""Functions with graphs of their runs: by what these depend on, and plain Python wherever that is not proved."""

from __future__ import annotations

import functools
import types
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from tesserack import _native
from tesserack.jit._compile import capture as _capture
from tesserack.jit._compile.backends import PLAIN, lookup_backend
from tesserack.jit._compile.before import Seeds
from tesserack.jit._compile.choice import why_plain
from tesserack.jit._compile.errors import BackendCompilerFailed, NotProved, Unsupported
from tesserack.jit._compile.graphs import GraphRecorder
from tesserack.jit._compile.logs import tell
from tesserack.jit._compile.programs import ProgramRecorder
from tesserack.jit._compile.results import shape_of
from tesserack.jit._compile.stance import current as current_stance
from tesserack.jit._compile.state import keeps_casts, modes
from tesserack.jit._compile.whole import OtherResults
from tesserack.utils import _pytree as pytree

__all__ = ["Compiled", "Entry", "config", "reset"]

_all: weakref.WeakSet[Compiled] = weakref.WeakSet()
# `attempts`: how often a run is tried that may be a graph the next time; `closer`: one that is looked at step by step.
# `again`, `again_closely`: the call of new shapes from which on these get a graph too, once there is one; a loop whose
# sequences grow would otherwise make graphs that are never run.
# `sizes`: as `recompile_limit`, of functions whose sizes are said to vary.
# `smallest`: programs of fewer operators are run by Python where that is as quick: it is measured if that changes
# nothing, and taken for granted if not.
config = {
    "recompile_limit": 8,
    "sizes": 64,
    "attempts": 3,
    "closer": 5,
    "smallest": 8,
    "misses": 16,
    "again": 2,
    "again_closely": 12,
    "met": 1024,
}


class Entry(NamedTuple):
    """A graph, what a compiler made of it, and what both depend on."""

    capture: Any
    call: Callable[..., Any]
    dependencies: Any
    whole: bool  # given a list of tensors, without a compiler of the program's


class _Known:
    """Graphs that were made, by what they are for. What is forgotten is all of it at once: other threads run on."""

    def __init__(self) -> None:
        self.entries: dict[Any, list[Entry]] = {}
        self.places: list[Entry] = []
        self.switches = 0
        self.replays = _native._Replays()  # the same, by what is quickly compared

    def note_switch(self, entries: list[Entry]) -> None:
        """The values that some graphs go by were others than before: if that was so twice, they are asked for first."""
        self.switches += 1
        if self.switches > 1:
            for entry in entries:
                if entry.whole and entry.capture.module.compared:
                    entry.capture.module.ask_first()

    def keep_at_hand(self, entry: Entry, guard: Any, args: Any, kwargs: Any) -> None:
        """Have calls like this one find the graph by its guard."""
        place = next(k for k, other in enumerate(self.places) if other is entry)
        if signature := _native._call_signature(args, kwargs):
            self.replays.add(signature, guard, place, entry.capture.module.native if entry.whole else None)


class Compiled:
    """A function, or a module's call, run by a compiler's graphs. ``roots`` are the objects that it begins from."""

    def __init__(
        self,
        function: Callable[..., Any],
        roots: list[Any],
        backend: Any,
        fullgraph: bool,
        options: dict[str, Any],
        dynamic: bool = False,
    ) -> None:
        self.function, self.roots, self.backend, self.fullgraph = function, roots, backend, fullgraph
        self.options, self.dynamic = options, dynamic
        # What is called: where a graph is at hand it runs without a word of Python.
        self.quick = _native._CompiledFunction(function, self.run, self.failed)
        self.forget()
        _all.add(self)

    def __reduce__(self) -> Any:
        return _nothing, ()  # a copy of the module is compiled anew

    def forget(self) -> None:
        """Nothing is known of runs."""
        self.known = _Known()
        self.reasons: list[str] = []
        self.notes: list[str] = []
        self.plain = False
        self._closely = self.fullgraph  # whether each step of a run is looked at
        self._attempts = 0
        self._seeds = Seeds()
        self._count = self._misses = 0
        self._met: Counter[Any] = Counter()

    @property
    def name(self) -> str:
        """What it is called in messages."""
        root = self.roots[0]
        return str(getattr(root, "__qualname__", type(root).__name__))

    @property
    def plain(self) -> bool:
        """Whether calls are Python's from now on."""
        return self._plain

    @plain.setter
    def plain(self, plain: bool) -> None:
        self._plain = plain
        if plain:
            told = [*self.reasons, *self.notes]
            tell("breaks", "%s runs as plain Python: %s", self.name, told[-1] if told else "no graph repeats it")
        _native._use_replays(self.quick, None if plain else self.known.replays)

    @property
    def places(self) -> list[Entry]:
        """The graphs, in the order in which they were made."""
        return self.known.places

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.quick(*args, **kwargs)

    def run(self, args: Any, kwargs: Any) -> Any:
        """The result of a call that no graph is at hand for, or one that gives more than a tensor."""
        known = self.known
        found = known.replays.find(args, kwargs)
        if not found or current_stance().stance == "force_eager" or _capture.compiling():
            if found is False and self._count >= self._limit():
                return self.function(*args, **kwargs)  # there is no graph of such arguments, and there are enough
            return self._searched(args, kwargs)
        return self._replayed(known.places[found[0]], found[1], args, kwargs)

    def _searched(self, args: Any, kwargs: Any) -> Any:
        """A call for which no graph is at hand: it may have to be looked for, or be made."""
        name = current_stance().stance
        if name == "force_eager" or _capture.compiling() or modes():
            return self.function(*args, **kwargs)
        try:
            inputs = _capture.Inputs.of(args, kwargs, keep=False)
        except NotProved as error:
            return self._given_what_is_not_seen(error, args, kwargs)
        known = self.known
        for entry in known.entries.get(inputs.token, ()):
            if (guard := entry.dependencies.hold(inputs.tensors)) is not None:
                known.keep_at_hand(entry, guard, args, kwargs)
                return self._replayed(entry, inputs.tensors, args, kwargs)
        if name == "fail_on_recompile" and self._count:
            raise RuntimeError(
                "Detected recompile when torch.compile stance is 'fail_on_recompile': no graph fits these arguments"
            )
        if name == "eager_on_recompile" or self._count >= self._limit():
            self._note_miss()
            return self.function(*args, **kwargs)
        if self._count and self._is_rare(inputs.token):
            return self.function(*args, **kwargs)
        return self._first(inputs.token, args, kwargs)

    def _limit(self) -> int:
        """How many graphs may be made."""
        return max(config["recompile_limit"], config["sizes"] if self.dynamic else 0)

    def _is_rare(self, token: Any) -> bool:
        """Whether so few calls had such arguments that a graph of them may never be run. A program's own compiler is
        given every one, and so is what has to be a graph."""
        if self.fullgraph or (current_stance().force_backend or self.backend) not in PLAIN:
            return False
        if len(self._met) > config["met"]:
            self._met.clear()
        self._met[token] += 1
        return self._met[token] < config["again_closely" if self._closely else "again"]

    def _note_miss(self, why: str = "") -> None:
        """There are as many graphs as may be, and none holds: to find that out takes longer than a call of Python."""
        self._misses += 1
        if self._misses >= config["misses"]:
            told = why or f"what it reads changes from call to call: none of {self._count} graphs holds"
            self.notes.append(told)
            self.plain = True

    def _first(self, token: Any, args: Any, kwargs: Any) -> Any:
        """The result of a run that is captured; of the compiler's, where running twice changes nothing."""
        known = self.known
        backend = current_stance().force_backend or self.backend
        kind = ProgramRecorder if backend in PLAIN else GraphRecorder
        if kind is GraphRecorder and keeps_casts():
            return self.function(*args, **kwargs)
        others = {id(e.dependencies): e.dependencies for e in known.places}.values()
        result, found = _capture.run(self.function, self.roots, args, kwargs, self._seeds, kind, self._closely, others)
        if isinstance(found, NotProved):
            if found.reason == _capture.HELD:
                self._note_miss(found.reason)
            elif found.reason != _capture.OTHERWISE:
                self._note_attempt(found)
            return result
        few = kind is ProgramRecorder and len(found.module) < config["smallest"] and not self.fullgraph
        if few and (found.changed or found.module.recorded):
            return self._left_to_python(found, "which Python calls as fast as a graph would", result)
        self._count += 1
        self._attempts = 0
        graph = found.module.graph
        steps = graph.num_nodes if kind is ProgramRecorder else len(graph.nodes)
        tell("graphs", "%s: graph %d, of %d steps", self.name, self._count, steps)
        inputs = _capture.Inputs.of(args, kwargs)
        call = found.module.run if kind is ProgramRecorder else self._lowered(backend, found, inputs.tensors)
        whole = kind is ProgramRecorder
        if whole and (shape := shape_of(found.results, found.spec)) is not None:
            found.module.native.returns(shape)
        entry = Entry(found, call, found.dependencies, whole)
        known.entries.setdefault(token, []).append(entry)
        known.places.append(entry)
        known.keep_at_hand(entry, found.dependencies.guard, args, kwargs)
        if few and (why := self._why_plain(args, kwargs)):
            return self._left_to_python(found, why, result)
        if found.changed or entry.whole:
            return result
        return self._replayed(entry, inputs.tensors, args, kwargs)

    def _why_plain(self, args: Any, kwargs: Any) -> str:
        """Why the graph of such a call, which is a small one, is not worth it."""
        if not self.known.replays.find(args, kwargs):
            return "and takes arguments that only Python compares"
        return why_plain(self.function, self.quick, args, kwargs)

    def _left_to_python(self, found: Any, why: str, result: Any) -> Any:
        few = f"it has {found.module.graph.num_nodes} operators"
        calls = len(getattr(found.module, "calls", ()))
        few += f", {calls} of them calls of Python" if calls else ""
        self.notes.append(f"{few}: {why}")
        self.known = _Known()
        self.plain = True
        return result

    def _lowered(self, backend: Any, found: Any, tensors: list[Any]) -> Callable[..., Any]:
        backend = lookup_backend(backend)
        try:
            made = backend(found.module, [*tensors], **self.options)
        except Exception as error:
            raise BackendCompilerFailed(backend, error) from error
        if not callable(made):
            raise BackendCompilerFailed(backend, TypeError(f"expected a function back, got {type(made).__name__}"))
        return made  # type: ignore[no-any-return]

    def _replayed(self, entry: Entry, tensors: list[Any], args: Any, kwargs: Any) -> Any:
        try:
            outputs = entry.call(tensors) if entry.whole else entry.call(*tensors)
        except Exception as error:
            if _is_of_other_values(entry, error):
                return self._of_other_values(entry, args, kwargs)
            if not self._goes_on(entry, error):
                raise
            return self.function(*args, **kwargs)
        return self._put_together(entry, outputs, tensors)

    @staticmethod
    def _put_together(entry: Entry, outputs: Any, tensors: list[Any]) -> Any:
        capture = entry.capture
        sources = {"output": outputs if isinstance(outputs, (list, tuple)) else [outputs], "input": tensors}
        made: dict[int, Any] = {}
        leaves = [
            what
            if kind == "value"
            else what(sources["output"], tensors, made)
            if kind == "made"
            else sources["output"][what].item()
            if kind == "number"
            else sources[kind][what]
            for kind, what in capture.results
        ]
        return pytree.tree_unflatten(leaves, capture.spec)

    def failed(self, place: int, error: Exception, args: Any, kwargs: Any) -> Any:
        """The result of a call whose graph raised; NotImplemented where it is to raise that."""
        places = self.known.places
        if place < len(places) and _is_of_other_values(places[place], error):
            return self._of_other_values(places[place], args, kwargs)
        if place < len(places) and self._goes_on(places[place], error):
            return self.function(*args, **kwargs)
        return NotImplemented

    def _of_other_values(self, entry: Entry, args: Any, kwargs: Any) -> Any:
        """The result of a call for which a graph was run that is of other values: another one's, or Python's. What
        ran has changed nothing."""
        known = self.known
        inputs = _capture.Inputs.of(args, kwargs, keep=False)
        for other in (there := known.entries.get(inputs.token, [])):
            if other is entry or not other.whole or not other.capture.module.native.may_be_meant():
                continue
            if (guard := other.dependencies.hold(inputs.tensors)) is None:
                continue
            try:
                result = self._put_together(other, other.call(inputs.tensors), inputs.tensors)
            except Exception:
                continue  # it is of others as well
            known.keep_at_hand(other, guard, args, kwargs)  # in front: values mostly stay
            known.note_switch(there)
            return result
        if self._count < self._limit() and current_stance().stance == "default":
            return self._first(inputs.token, args, kwargs)
        self._note_miss()
        return self.function(*args, **kwargs)

    def _goes_on(self, entry: Entry, error: Exception) -> bool:
        """Whether Python, after an error of a graph, makes the call anew, which raises, or goes on after, an error of
        its own."""
        if isinstance(error, OtherResults) and entry.whole and (entry.capture.module.steady or error.early):
            self.notes.append(str(error))
            self.plain = True
            return True
        return not entry.capture.changed and (entry.whole or bool(entry.dependencies.catches()))

    def _given_what_is_not_seen(self, error: NotProved, args: Any, kwargs: Any) -> Any:
        """A call whose arguments are such that it is Python's."""
        raises = self.fullgraph and not error.own
        self._note_attempt(error if raises else NotProved(error.reason, passing=True, own=error.own))
        return self.function(*args, **kwargs)

    def _note_attempt(self, error: NotProved) -> None:
        self._attempts += 1
        warns = self.fullgraph and error.reason.endswith(" warns")  # as it may do in every call
        if error.passing and not warns and self._attempts < config["closer" if self._closely else "attempts"]:
            return
        if not (error.passing or error.final or self._closely):
            self._closely, self._attempts = True, 0
            return
        self.reasons.append(error.reason)
        if self.fullgraph and not error.own:
            raise Unsupported(
                f"compile: expected a function that is one graph (fullgraph=True), but {error.reason}; leave fullgraph "
                "out to have it run as plain Python"
            )
        self.plain = True


def _is_of_other_values(entry: Entry, error: Exception) -> bool:
    """Whether a run of a graph says that it is of other values. Where it failed, that may be why."""
    return entry.whole and entry.capture.module.compared


def _nothing() -> None:
    return None


def reset() -> None:
    """Have every compiled function forget its graphs."""
    for compiled in [*_all]:
        compiled.forget()


def wrap(
    function: Callable[..., Any], backend: Any, fullgraph: bool, options: dict[str, Any], dynamic: bool = False
) -> Callable[..., Any]:
    """A function of the same name and signature that a compiler runs; what is not written in Python stays as it is."""
    lookup_backend(backend)
    if isinstance(function, (type, types.BuiltinFunctionType, _native.Operator)) and not fullgraph:
        return function
    compiled = Compiled(function, [function], backend, fullgraph, options, dynamic)

    call = functools.update_wrapper(compiled.quick, function)
    call.__dict__.update(_compiled=compiled, _torchdynamo_orig_callable=function)
    return call
