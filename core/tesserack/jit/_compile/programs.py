"""A run as a graph of the core, of the calls as the program makes them: it runs without Python, above autograd."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.jit._compile.dependencies import Dependencies
from tesserack.jit._compile.errors import NotProved
from tesserack.jit._compile.watch import PACKAGE, Watch
from tesserack.jit._compile.whole import WholeCall, WholeCalls, check_parts, operator

__all__ = ["Program", "ProgramRecorder"]


_VALUES_READ = "values of a tensor are read, and Python goes by them"


class Program:
    """A graph that runs: ``run(tensors)`` gives its results. ``graph`` is what the program did."""

    def __init__(self, graph: Any, recorded: bool, calls: list[WholeCall]) -> None:
        self.graph, self.calls = graph, calls
        as_it_is = recorded or calls or graph.writes_memory
        self.exact = graph if as_it_is else graph.specialised().optimised()
        self.run = _native._GraphRunner(self.exact, "never" if calls else "again").run

    def __len__(self) -> int:
        return int(self.graph.num_nodes)


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
        self.whole = WholeCalls(watch, self._put)
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
            self.graph: Any = graph.outer_level()
        except NotProved as error:
            self.graph = error
        except RuntimeError as error:
            self.graph = NotProved(str(error))

    def place(self, output: Tensor) -> int:
        """Which of the graph's results a tensor is."""
        return next(k for k, known in enumerate(self.returned) if known is output)

    def finish(self, dependencies: Dependencies, known: dict[int, Tensor]) -> Program:
        """The program. ``NotProved`` where it uses what is not seen, or hands out values."""
        graph = self.graph
        if isinstance(graph, NotProved):
            raise graph
        for tensor, constant in zip(graph.captured, graph.constant, strict=True):
            if not constant and id(tensor) not in known and tensor is not self._some:
                raise NotProved("a tensor is used that is held where it cannot be seen")
        if graph.host_reader is not None:
            raise NotProved(f"{graph.host_reader} hands out values, or sizes that depend on them")
        self.changed = graph.has_random or graph.writes_memory or bool(self.whole.calls)
        recorded = ts.is_grad_enabled() and any(t.requires_grad for t in (*self.tensors, *graph.captured))
        return Program(graph, recorded, self.whole.calls)
