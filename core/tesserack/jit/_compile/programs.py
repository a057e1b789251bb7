"""A run as a graph of the core, of the calls as the program makes them: it runs without Python, above autograd."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.jit._compile.dependencies import Dependencies
from tesserack.jit._compile.errors import NotProved
from tesserack.jit._compile.watch import PACKAGE, Watch
from tesserack.jit._compile.whole import WholeCall, WholeCalls, check_parts, values_of
from tesserack.jit._python_call import OPERATOR, operator

__all__ = ["Program", "ProgramRecorder"]


_OWN_REGION = "autocast region of the program's own"  # which PyTorch's graphs take, whatever casts it
_VALUES_READ = "values of a tensor are read, and Python goes by them"


def _planned(graph: Any, recorded: bool, outside: bool = False) -> Any:
    """What runs a graph."""
    exact = graph if recorded or graph.writes_memory else graph.specialised().optimised()
    return _native._GraphRunner(exact, "again", outside)


class Program:
    """A graph that runs: ``run(tensors)`` gives its results. ``graph`` is what the program did; ``native`` is what
    runs it, for calls that Python has no part in, too.
    """

    steady = True  # whether a run that was broken off may be made anew by Python, if nothing was changed
    recorded = True  # whether gradients may flow through it
    compared = False  # whether a run may find that it is of other values
    first_compared = 0  # the first result by which it does
    first_read: Any = None  # what computes that alone

    def __init__(self, graph: Any, recorded: bool) -> None:
        self.graph, self.recorded = graph, recorded
        runner = _planned(graph, recorded)
        self.runners = [runner]
        self.native = _native._GraphProgram(graph.inputs, [(runner, graph.inputs, graph.outputs)], graph.outputs)
        self.run = self.native.run

    def __len__(self) -> int:
        return int(self.graph.num_nodes)

    def ask_first(self) -> None:
        """Have runs compute first what they go by, and be those of the graph that is meant; if that is a smaller part
        of the graph, that writes nothing."""
        if self.first_read is None and not self.graph.writes_memory:
            part = self.graph.only(self.graph.outputs[self.first_compared]).specialised().optimised()
            self.first_read = _native._GraphRunner(part) if part.num_nodes * 2 <= self.graph.num_nodes else False
        if self.first_read:
            self.native.asks(self.first_read)


class RegionProgram(Program):
    """A graph that was written down within an autocast region, with the casts that such a region keeps in front: these
    are made in the region of each run, and what follows runs by plans, which know no regions. ``graph`` is the same in
    the order of the program, and runs where hooks would see that gradients come in another one.
    """

    first_read = False  # within a region: it would run outside

    def __init__(self, graph: Any, sorted_graph: Any, casts: int, recorded: bool) -> None:
        self.graph = graph
        in_order = _planned(graph, True)
        graph = sorted_graph
        first, _, made = graph.part(0, casts)
        rest, given, gives = graph.part(casts, graph.num_nodes)
        runner = _planned(rest, recorded, outside=True)
        self.runners = [runner]
        steps = [(_native._GraphRunner(first), [], made), (runner, given, gives)]
        self.native = _native._GraphProgram(graph.inputs, steps, graph.outputs, {}, in_order)
        self.run = self.native.run


def _are_computed(graph: Any) -> bool:
    """Whether all results are, and none is given."""
    return all(graph.value(v)["producer"] is not None for v in graph.outputs)


# Operators that Python calls in the time that it takes to part a graph for a call; for one that gradients pass, too.
_CALL, _COMPUTES = 3, 8


class PartedProgram(Program):
    """A graph with calls of Python that stand whole: these, and graphs of what is between them."""

    def __init__(self, graph: Any, calls: list[WholeCall], places: list[int]) -> None:
        self.graph, self.calls = graph, calls
        # Whether a run that was broken off may be made anew by Python.
        self.steady = all(call.computes for call in calls)
        self.runners: list[Any] = []  # of what is between calls
        self.steps = [*self._steps(places)]
        needed = {value for _, given, _ in self.steps for value in given} | {*graph.outputs}
        captured = zip(graph.captures, graph.captured, strict=True)
        held = {value: tensor for value, tensor in captured if value in needed}
        self.native = _native._GraphProgram(graph.inputs, self.steps, graph.outputs, held)
        self.run = self.native.run

    def __len__(self) -> int:
        """How much is gained: operators, less what it takes to go on to each call and after it."""
        return max(0, int(self.graph.num_nodes) - sum(_COMPUTES if call.computes else _CALL for call in self.calls))

    def _steps(self, places: list[int]) -> Iterator[tuple[Any, list[int], list[int]]]:
        """What runs, a graph or a call; on which values; giving which."""
        begin, made, unchanged = 0, {call.number: call for call in self.calls}, True
        for place in (*places, self.graph.num_nodes):
            if begin < place:
                part, given, gives = self.graph.part(begin, place)
                unchanged &= not (part.has_random or part.writes_memory)
                self.steady &= unchanged
                self.runners.append(_native._GraphRunner(part))
                yield self.runners[-1], given, gives
            if place < self.graph.num_nodes:
                node = self.graph.node(place)
                call: Any = made[node["args"][0]]
                call.early, unchanged = unchanged, unchanged and call.computes
                given, gives = ([value for _, value in items] for items in (node["args"][1][1:], node["results"][0]))
                yield ts.no_grad()(call) if node["no_grad"] else call, given, gives
            begin = place + 1


class ProgramRecorder:
    """As a context: has the core write down what is done with these tensors."""

    def __init__(self, watch: Watch, names: list[str], tensors: list[Tensor]) -> None:
        self.watch, self.tensors = watch, tensors
        watch.native = True
        # Which is not told to this object itself: the core's tracer is none that the collector of garbage sees through.
        self.reads: list[Tensor] = []  # values that Python has read
        reading = functools.partial(_note_values, watch, self.reads)
        refuse = functools.partial(_refuse_values, watch)
        self.tracer = _native._Tracer(PACKAGE + "/", refuse, False, reading)
        for name, tensor in zip(names, tensors, strict=True):
            self.tracer.add_input(tensor, name)
        watch.count = lambda: self.tracer.num_calls
        self.changed = False
        self.whole = WholeCalls(watch, self._put, operators=True, reads=True)
        self._some = ts.empty(0)  # a call of no tensors, too, comes to where gradients are recorded

    def __enter__(self) -> ProgramRecorder:
        self.tracer.begin()
        self.whole.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.whole.__exit__(*error)
        self.tracer.cancel()
        if error[0] is not None:
            self.watch.count = int  # which leads back here: what the run has made would not be let go

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
            graph = self.tracer.end([*self.returned, *self.reads])
            check_parts(graph, self.whole.calls)
            self.region = graph.casts_first() if _native._in_autocast() and not self.whole.calls else None
            self.graph: Any = graph.outer_level()
            if self.tracer.makes_leaves and any(leaf.requires_grad for leaf in self.returned):
                self.graph = NotProved("a tensor is made that requires gradients: a graph would make none", own=True)
        except NotProved as error:
            self.graph = error
        except RuntimeError as error:
            self.graph = NotProved(str(error), own=_OWN_REGION in str(error))

    def place(self, output: Tensor) -> int:
        """Which of the graph's results a tensor is."""
        return next(k for k, known in enumerate(self.returned) if known is output)

    def finish(self, dependencies: Dependencies, known: dict[int, Tensor]) -> Program:
        """The program. ``NotProved`` where it uses what is not seen, or hands out values."""
        graph = self.graph
        if isinstance(graph, NotProved):
            raise graph
        nodes = [graph.node(n) for n in range(graph.num_nodes)] if self.whole.calls else []
        # What such a call reads by itself it finds each time.
        own = {call.number: call.own for call in self.whole.calls}
        found = dict(zip(graph.captures, map(id, graph.captured), strict=True))
        used = {*graph.outputs}
        for node in nodes:
            finds = own[node["args"][0]] if node["op"] == OPERATOR else ()
            used |= {value for value in values_of(node["args"]) if found.get(value) not in finds}
        for value, tensor, constant in zip(graph.captures, graph.captured, graph.constant, strict=True):
            if (value in used or not nodes) and not constant and id(tensor) not in known and tensor is not self._some:
                raise NotProved("a tensor is used that is held where it cannot be seen")
        self.changed = graph.has_random or graph.writes_memory or bool(self.whole.calls)
        self._check_values(graph)
        recorded = ts.is_grad_enabled() and any(t.requires_grad for t in (*self.tensors, *graph.captured))
        if not self.whole.calls:
            first, casts = self.region or (graph, -1)
            whole = casts >= 0 and _are_computed(first)
            program = RegionProgram(graph, first, casts, recorded) if whole else Program(graph, recorded)
            self._expect_values(graph, program)
            return program
        places = [n for n, node in enumerate(nodes) if node["op"] == OPERATOR]
        return PartedProgram(graph, self.whole.calls, places)

    def _check_values(self, graph: Any) -> None:
        """``NotProved`` where Python may go by values, or by sizes that follow from them, and a run with others, which
        is known only when it is over, could not be made anew."""
        changed = graph.has_random or bool(self.whole.calls) or _writes_outside(graph)
        reader = graph.host_reader(sizes=changed)
        if reader is not None:
            raise NotProved(f"{reader} hands out values, or sizes that depend on them", own=not self.reads)
        if self.reads and changed:
            raise NotProved(_VALUES_READ)

    def _expect_values(self, graph: Any, program: Program) -> None:
        """Have runs compare what Python has gone by in this one."""
        begin = len(self.returned)
        for at, value in enumerate(graph.outputs[begin:], begin):
            read = self.reads[at - begin] if at - begin < len(self.reads) else None
            program.native.expects(at, graph.value(value)["shape"], read)
            program.first_compared, program.compared = begin, True


def _writes_outside(graph: Any) -> bool:
    """Whether a run writes to what was there before."""
    if not graph.writes_memory:
        return False
    before = {graph.value(value)["alias"] for value in (*graph.inputs, *graph.captures)}
    written = [value for n in range(graph.num_nodes) for value in graph.node(n)["writes"]]
    return any(graph.value(value)["alias"] in before for value in written)


def _note_values(watch: Watch, reads: list[Tensor], tensor: Tensor) -> bool:
    """Have a tensor whose values Python reads be a result, by which runs are compared."""
    if watch.inside or watch.opaque:
        return True
    if tensor.layout is not ts.strided or tensor.is_quantized:
        return False
    watch.inside = True
    try:
        reads.append(tensor.detach().clone(memory_format=ts.contiguous_format))
    finally:
        watch.inside = False
    return True


def _refuse_values(watch: Watch, text: str) -> None:
    watch.refuse_outside(_VALUES_READ)
