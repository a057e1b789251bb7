"""A run as a graph of the core, of the calls as the program makes them: it runs without Python, above autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.jit._compile.dependencies import Dependencies
from tesserack.jit._compile.errors import NotProved
from tesserack.jit._compile.watch import PACKAGE, Watch
from tesserack.jit._compile.whole import OPERATOR, WholeCall, WholeCalls, check_parts, operator, values_of

__all__ = ["Program", "ProgramRecorder"]


_VALUES_READ = "values of a tensor are read, and Python goes by them"


def _planned(graph: Any, recorded: bool, outside: bool = False) -> Any:
    """What runs a graph."""
    exact = graph if recorded or graph.writes_memory else graph.specialised().optimised()
    return _native._GraphRunner(exact, "again", outside)


class RegionProgram:
    """A graph that was written down within an autocast region, with the casts that such a region keeps in front: these
    are made in the region of each run, and what follows runs by plans, which know no regions. ``graph`` is the same in
    the order of the program, and runs where hooks would see that gradients come in another one.
    """

    def __init__(self, graph: Any, sorted_graph: Any, casts: int, recorded: bool) -> None:
        self.graph = graph
        self.called = _planned(graph, True).run
        graph = sorted_graph
        first, _, made = graph.part(0, casts)
        rest, given, gives = graph.part(casts, graph.num_nodes)
        self.casts = _native._GraphRunner(first)
        self.runner = _planned(rest, recorded, outside=True)
        inputs = list(graph.inputs)
        self._given = [(True, inputs.index(v)) if v in inputs else (False, made.index(v)) for v in given]
        self._gives = [gives.index(v) for v in graph.outputs]
        self.runners = [self.runner]

    def __len__(self) -> int:
        return int(self.graph.num_nodes)

    def run(self, tensors: list[Tensor]) -> list[Tensor]:
        """The results."""
        if self.casts.hooked() or self.runner.hooked():
            return self.called(tensors)  # type: ignore[no-any-return]
        made = self.casts.run(())
        results = self.runner.run([tensors[k] if is_input else made[k] for is_input, k in self._given])
        return [results[k] for k in self._gives]


class Program:
    """A graph that runs: ``run(tensors)`` gives its results. ``graph`` is what the program did."""

    def __init__(self, graph: Any, recorded: bool) -> None:
        self.graph = graph
        self.runner = _planned(graph, recorded)
        self.run, self.runners = self.runner.run, [self.runner]

    def __len__(self) -> int:
        return int(self.graph.num_nodes)


def _are_computed(graph: Any) -> bool:
    """Whether all results are, and none is given."""
    return all(graph.value(v)["producer"] is not None for v in graph.outputs)


# Operators that Python calls in the time that it takes to part a graph for a call; for one that gradients pass, too.
_CALL, _COMPUTES = 3, 8


class Step(NamedTuple):
    """Part of a program: what runs, on which values, giving which, and which are not needed any more."""

    run: Callable[..., Any]
    whole: bool  # given a list of tensors
    given: list[int]
    gives: list[int]
    done: list[int]


class PartedProgram:
    """A graph with calls of Python that stand whole: these, and graphs of what is between them."""

    def __init__(self, graph: Any, calls: list[WholeCall], places: list[int]) -> None:
        self.graph, self.calls = graph, calls
        # Whether a run that was broken off may be made anew by Python.
        self.steady = all(call.computes for call in calls)
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self.held = dict(zip(graph.captures, graph.captured, strict=True))
        self.runners: list[Any] = []  # of what is between calls
        self.steps = [*self._steps(places)]
        needed = {value for step in self.steps for value in step.given} | {*self.outputs}
        self.held = {value: tensor for value, tensor in self.held.items() if value in needed}
        self._note_ends()

    def __len__(self) -> int:
        """How much is gained: operators, less what it takes to go on to each call and after it."""
        return max(0, int(self.graph.num_nodes) - sum(_COMPUTES if call.computes else _CALL for call in self.calls))

    def _steps(self, places: list[int]) -> Iterator[Step]:
        begin, made = 0, {call.number: call for call in self.calls}
        for place in (*places, self.graph.num_nodes):
            if begin < place:
                part, given, gives = self.graph.part(begin, place)
                self.steady &= not (part.has_random or part.writes_memory)
                self.runners.append(_native._GraphRunner(part))
                yield Step(self.runners[-1].run, True, given, gives, [])
            if place < self.graph.num_nodes:
                node = self.graph.node(place)
                call: Any = made[node["args"][0]]
                given, gives = ([value for _, value in items] for items in (node["args"][1][1:], node["results"][0]))
                yield Step(ts.no_grad()(call) if node["no_grad"] else call, False, given, gives, [])
            begin = place + 1

    def _note_ends(self) -> None:
        """Values go where they are used last."""
        seen = {*self.outputs, *self.held}
        for step in reversed(self.steps):
            for value in {*step.given, *step.gives} - seen:
                step.done.append(value)
            seen.update(step.given, step.gives)

    def run(self, tensors: list[Tensor]) -> list[Tensor]:
        """The results."""
        values = {**self.held, **dict(zip(self.inputs, tensors, strict=True))}
        for run, whole, given, gives, done in self.steps:
            args = [values[value] for value in given]
            values.update(zip(gives, run(args) if whole else run(*args), strict=True))
            for value in done:
                del values[value]
        return [values[value] for value in self.outputs]


class ProgramRecorder:
    """As a context: has the core write down what is done with these tensors."""

    def __init__(self, watch: Watch, names: list[str], tensors: list[Tensor]) -> None:
        self.watch, self.tensors = watch, tensors
        watch.native = True
        # Which is not told to this object itself: the core's tracer is none that the collector of garbage sees through.
        self.tracer = _native._Tracer(PACKAGE + "/", lambda text: watch.refuse_outside(_VALUES_READ), False)
        for name, tensor in zip(names, tensors, strict=True):
            self.tracer.add_input(tensor, name)
        watch.count = lambda: self.tracer.num_calls
        self.changed = False
        self.whole = WholeCalls(watch, self._put, operators=True)
        self._some = ts.empty(0)  # a call of no tensors, too, comes to where gradients are recorded

    def __enter__(self) -> ProgramRecorder:
        self.tracer.begin()
        self.whole.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.whole.__exit__(*error)
        self.tracer.cancel()

    def _put(self, call: WholeCall) -> Any:
        operator()(call.number, [self._some, *call.tensors])
        return call.result

    def stop(self, results: Iterable[Tensor]) -> None:
        """What comes from now on is not the program's, which hands out these."""
        self.watch.count = int
        given = {id(tensor) for tensor in self.tensors}
        leaves = {id(leaf): leaf for leaf in results}
        self.returned = [leaf for key, leaf in leaves.items() if key not in given]
        try:
            graph = self.tracer.end(self.returned)
            check_parts(graph, self.whole.calls)
            self.region = graph.casts_first() if _native._in_autocast() and not self.whole.calls else None
            self.graph: Any = graph.outer_level()
        except NotProved as error:
            self.graph = error
        except RuntimeError as error:
            self.graph = NotProved(str(error))

    def place(self, output: Tensor) -> int:
        """Which of the graph's results a tensor is."""
        return next(k for k, known in enumerate(self.returned) if known is output)

    def finish(self, dependencies: Dependencies, known: dict[int, Tensor]) -> Program | RegionProgram | PartedProgram:
        """The program. ``NotProved`` where it uses what is not seen, or hands out values."""
        graph = self.graph
        if isinstance(graph, NotProved):
            raise graph
        nodes = [graph.node(n) for n in range(graph.num_nodes)] if self.whole.calls else []
        # What such a call reads by itself it finds each time.
        used = {value for node in nodes for value in values_of(node["args"])} | {*graph.outputs}
        for value, tensor, constant in zip(graph.captures, graph.captured, graph.constant, strict=True):
            if (value in used or not nodes) and not constant and id(tensor) not in known and tensor is not self._some:
                raise NotProved("a tensor is used that is held where it cannot be seen")
        if (reader := graph.host_reader()) is not None:
            raise NotProved(f"{reader} hands out values, or sizes that depend on them")
        self.changed = graph.has_random or graph.writes_memory or bool(self.whole.calls)
        recorded = ts.is_grad_enabled() and any(t.requires_grad for t in (*self.tensors, *graph.captured))
        if not self.whole.calls:
            first, casts = self.region or (graph, -1)
            if casts >= 0 and _are_computed(first):
                return RegionProgram(graph, first, casts, recorded)
            return Program(graph, recorded)
        places = [n for n, node in enumerate(nodes) if node["op"] == OPERATOR]
        return PartedProgram(graph, self.whole.calls, places)
