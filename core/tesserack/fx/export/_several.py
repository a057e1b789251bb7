"""A function traced at several sizes of its arguments, as one graph: what ``make_fx(tracing_mode="symbolic")`` makes.

Sizes of 2 and more vary, those that are equal in the example together, as in PyTorch ("duck shaping").
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.aten.fake.fake_tensor import FakeTensor, FakeTensorMode
from tesserack.aten.operators import namespace
from tesserack.fx.export._merge import Difference, merge
from tesserack.fx.export._ranges import Symbol, ValueRanges
from tesserack.fx.export._symbols import named_columns, remainders, sizes_at, trials
from tesserack.fx.export._trace import _resized
from tesserack.fx.export._watch import Watch, watching
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import map_aggregate

__all__ = ["at_all_sizes"]

aten = namespace("aten")
Run = Callable[[list[Any], FakeTensorMode], Any]  # the tracer of one run


def at_all_sizes(run: Run, leaves: list[Any]) -> Any:
    """The tracer whose graph is that of all sizes. Where the function does not take a size to vary, or does something
    else for others, the size is held, with a warning that names it."""
    tries = _Tries(run, leaves)
    # Equal sizes of one argument may be those of an image, or have to be equal.
    ways = [_symbols(leaves, True), _symbols(leaves, False)]
    reason: _Varies | None = None
    for symbols in ways:
        try:
            return tries.merged(symbols)
        except _Varies as error:
            reason = error
    for symbols in ways:
        taken, held = _taken(tries, symbols)
        try:
            made = tries.merged(taken)
        except _Varies:
            continue
        if held:
            warnings.warn(f"make_fx: the graph holds for {', '.join(held)} alone: {reason}", stacklevel=3)
        return made
    warnings.warn(f"make_fx: the graph holds for sizes as these alone: {reason}", stacklevel=3)
    return tries.merged([])


def _taken(tries: _Tries, symbols: list[Symbol]) -> tuple[list[Symbol], list[str]]:
    """Symbols that the function takes to vary by themselves, and what is held. Where it fails for some sizes, those
    that it takes may be multiples of the example's, or not much greater."""
    taken: list[Symbol] = []
    held: list[str] = []
    for symbol in symbols:
        reason = tries.varies(symbol)
        if reason is None:
            taken.append(symbol)
            continue
        places = [(leaf, dim, symbol.example, 0) for leaf, dim, _, _ in symbol.places]
        steps = Symbol(symbol.name, symbol.range, places, 1, hint=True)
        near = Symbol(symbol.name, ValueRanges(2, symbol.example + 4), symbol.places, symbol.example, hint=True)
        found = next((s for s in (steps, near) if reason.fails and tries.varies(s) is None), None)
        if found is not None:
            taken.append(found)
        elif symbol.places[0][1] != _NUMBER:
            held.append(f"{symbol.name}={symbol.example}")
    return taken, held


class _Varies(Exception):
    """What differs between sizes; ``fails``: the function does not take some."""

    def __init__(self, why: str, fails: bool = False) -> None:
        super().__init__(why)
        self.fails = fails


_NUMBER = -1  # as a dim: an argument that is a number


def _symbols(leaves: Sequence[Any], apart: bool) -> list[Symbol]:
    """Those of equal sizes, which are ``apart`` within one argument."""
    found: dict[tuple[int, int], Symbol] = {}
    for place, leaf in enumerate(leaves):
        sizes = [(dim, int(n)) for dim, n in enumerate(Tensor.size(leaf))] if isinstance(leaf, Tensor) else []
        if type(leaf) is int:
            sizes = [(_NUMBER, leaf)]
        for dim, size in sizes:
            if size > 1:
                turn = sum(n == size for d, n in sizes if d < dim) if dim >= 0 else -1 - place
                made = Symbol(f"s{len(found)}", ValueRanges(1, None), [], size, hint=True)
                found.setdefault((size, turn if apart else 0), made).places.append((place, dim, 1, 0))
    return [*found.values()]


class _Tries:
    """Traces of a function at other sizes, which are kept, and at the example's, which is merged into."""

    def __init__(self, run: Run, leaves: list[Any]) -> None:
        self.run, self.leaves = run, leaves
        self.made: dict[tuple[tuple[tuple[int, int], int], ...], tuple[Any, Watch]] = {}

    def varies(self, one: Symbol) -> _Varies | None:
        """Why the function depends on this size where all others are the example's."""
        try:
            self.merged([one])
        except _Varies as error:
            return error
        return None

    def merged(self, symbols: list[Symbol]) -> Any:
        """The graph for all values of the symbols."""
        rows = trials(symbols) if symbols else []
        for _ in range(3):
            tracer, divisors = self._merged_at(symbols, rows)
            more = [row for row in (*remainders(symbols, divisors), *self._asked_for(symbols, rows)) if row not in rows]
            if not more:
                break
            rows += more
        else:
            tracer, _ = self._merged_at(symbols, rows)
        return _settled(tracer)

    def _merged_at(self, symbols: list[Symbol], rows: Sequence[Sequence[int]]) -> tuple[Any, set[int]]:
        made = [self._traced({}), *(self._at(symbols, row) for row in rows)]
        first, every = made[0][0], [tracer for tracer, _ in made]
        _same_constants(every)
        columns = named_columns(symbols, [[s.example for s in symbols], *rows])
        try:
            divisors, _ = merge([t.graph for t in every], [t.root for t in every], columns, [w.trees for _, w in made])
        except Difference as error:
            raise _Varies(error.why) from error
        return first, divisors

    def _at(self, symbols: list[Symbol], row: Sequence[int]) -> tuple[Any, Watch]:
        sizes = sizes_at(symbols, row)
        key = tuple(sorted(sizes.items()))
        if key not in self.made:
            try:
                self.made[key] = self._traced(sizes)
            except Exception as error:
                first = str(error).strip().splitlines()
                shown = ", ".join(f"{s.name}={n}" for s, n in zip(symbols, row, strict=True))
                why = f"with {shown} it fails: {first[0] if first else type(error).__name__}"
                raise _Varies(why, fails=True) from error
        return self.made[key]

    def _asked_for(self, symbols: list[Symbol], rows: Sequence[Sequence[int]]) -> list[list[int]]:
        """Sizes around those that the function compares its sizes with."""
        found: dict[tuple[int, ...], None] = {}
        for row in rows:
            watch = self._at(symbols, row)[1]
            for place, (symbol, value) in enumerate(zip(symbols, row, strict=True)):
                factor = symbol.places[0][2]
                for n in sorted(watch.further(factor, 0, value)):
                    if n * factor > 1 and n != symbol.example and n in symbol.range:
                        found[(*rows[0][:place], n, *rows[0][place + 1 :])] = None
        return [[*row] for row in found][:_MOST_ASKED]

    def _traced(self, sizes: dict[tuple[int, int], int]) -> tuple[Any, Watch]:
        watch = Watch()
        mode = next((x.fake_mode for x in self.leaves if isinstance(x, FakeTensor) and not sizes), None)
        mode = FakeTensorMode() if mode is None else mode
        leaves = [
            watch.size(sizes.get((place, _NUMBER), leaf)) if type(leaf) is int else self._leaf(mode, leaf, place, sizes)
            for place, leaf in enumerate(self.leaves)
        ]
        before, mode.shown_sizes = mode.shown_sizes, watch.shown
        try:
            with watching(watch):
                return self.run(leaves, mode), watch
        finally:
            mode.shown_sizes = before

    def _leaf(self, mode: FakeTensorMode, leaf: Any, place: int, sizes: dict[tuple[int, int], int]) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if not sizes:
            return mode.from_tensor(leaf)
        made = _resized(mode, leaf, place, sizes)
        return made.requires_grad_() if leaf.requires_grad else made


_MOST_ASKED = 24  # tries, for a function that compares sizes with many numbers


def _same_constants(tracers: Sequence[Any]) -> None:
    """Tensors that the function holds are the same in all traces. Those that are made anew, of Python's numbers or by
    what is no operator, become steps where all elements are equal, or count from 0."""
    rows = [*zip(*([n for n in t.graph.nodes if n.op == "get_attr"] for t in tracers), strict=False)]
    for row in rows:
        values = [node.meta.get("val") for node in row]
        if any(not isinstance(v, Tensor) or isinstance(v, FakeTensor) for v in values):
            continue
        first = values[0]
        if all(v is first or _same(v, first) for v in values[1:]):
            continue
        made = [_made(v) for v in values]
        if (
            any(step is None or step[0] != made[0][0] or step[2] != made[0][2] for step in made if made[0])
            or not made[0]
        ):
            raise _Varies("a tensor that it makes of Python's numbers is another one")
        for tracer, node, (target, args, kwargs) in zip(tracers, row, made, strict=True):
            with tracer.graph.inserting_before(node):
                step = tracer.graph.create_node("call_function", target, args, kwargs)
            step.meta = dict(node.meta)
            node.replace_all_uses_with(step)
            tracer.graph.erase_node(node)


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype is other.dtype and bool(ts.equal(one, other))


def _made(x: Tensor) -> Any:
    """The step that makes a tensor: its target and arguments; None for one of several numbers."""
    kwargs = {"dtype": x.dtype, "device": x.device}
    if x.layout is not ts.strided:
        return None
    flat = x.flatten()
    if not x.numel() or bool((flat == flat[0]).all()):
        return aten.full.default, ([*x.shape], flat[0].item() if x.numel() else 0), kwargs
    if x.ndim == 1 and x.dtype is ts.int64 and bool((x == ts.arange(len(x), device=x.device)).all()):
        return aten.arange.default, (len(x),), kwargs
    return None


def _settled(tracer: Any) -> Any:
    """The tracer, the numbers of whose graph are plain."""
    graphs = [module.graph for module in tracer.root.modules() if isinstance(module, GraphModule)]
    for graph in (tracer.graph, *graphs):
        for node in graph.nodes:
            before = (node.args, node.kwargs)
            if _holds_watched(before):
                node.args, node.kwargs = map_aggregate(before, _plain)
    return tracer


def _plain(x: Any) -> Any:
    return int(x) if isinstance(x, int) and hasattr(x, "watch") else float(x) if hasattr(x, "watch") else x


def _holds_watched(tree: Any) -> bool:
    found: list[Any] = []
    map_aggregate(tree, lambda x: found.append(x) if hasattr(x, "watch") else None)
    return bool(found)
