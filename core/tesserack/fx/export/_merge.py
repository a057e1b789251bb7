"""Traces at several sizes as one graph: what differs between them is made of the sizes of what the graph is given."""

from __future__ import annotations

import itertools
import math
import operator
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from tesserack import Tensor
from tesserack.aten.operators import namespace
from tesserack.fx.experimental._proxy_tracer import CARRIED
from tesserack.fx.export._expression import Expression, SymInt, number, size
from tesserack.fx.export._recorded import LOST, Trees, alike, bound_trees, recorded
from tesserack.fx.export._sizes import bounded, find
from tesserack.fx.export._steps import divisors
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node

__all__ = ["Difference", "merge"]

aten = namespace("aten")


class Difference(Exception):
    """Traces that do not agree: at which node of the first, in which other one, and how."""

    def __init__(self, node: Node | None, trace: int, why: str, other: Node | None = None) -> None:
        super().__init__(why)
        self.node, self.trace, self.why, self.other = node, trace, why, other


_LARGE = 16  # greater divisors are told where it is seen that Python divides by them, not where they fit
# How numbers are made that may be one thing at most sizes and another at some: more are tried.
_BENT = ("min", "max", "abs", "%")
# Where calls of control flow take what their graphs are given besides: it stands last.
_FURTHER = {"cond": 3, "while_loop": 3, "scan": 3, "map_impl": 2, "associative_scan": 2}


def merge(
    graphs: Sequence[Graph], roots: Sequence[Any], names: dict[tuple[int, ...], str], trees: Sequence[Trees] = ()
) -> tuple[set[int], list[tuple[Expression, Expression]]]:
    """Make the first graph one for all sizes. ``names`` are those of sizes, by the numbers that they were. What numbers
    it divides sizes by, to whole ones: graphs at too few remainders do not tell such expressions apart. And the numbers
    that may be something else as well.

    Raises:
        Difference: if the graphs are not the same but for numbers, or a number follows from no sizes.
    """
    if len(graphs) < 2:
        return set(), []
    one = _Merged(graphs, roots, names)
    if trees:
        one.trees, one.every = trees[0], trees
    if any(isinstance(tree, tuple) and tree[0] in _BENT for made in one.trees.values() for tree in made):
        one.divisors.add(0)
    one.run()
    return one.divisors, one.doubts


class _Merged:
    """``around`` is the merged graph that this one is held by; ``further`` are its sizes that this one has to be given,
    with the placeholders for them."""

    def __init__(
        self,
        graphs: Sequence[Graph],
        roots: Sequence[Any],
        names: dict[tuple[int, ...], str],
        around: _Merged | None = None,
    ) -> None:
        self.graphs, self.roots, self.names, self.around = graphs, roots, names, around
        self.further: dict[str, tuple[Expression, Node]] = {}
        self.inner: dict[Node, _Merged] = {}  # of graphs that are held, by the nodes that read them
        self.rows: list[tuple[Node, ...]] = []
        self.places: list[dict[Node, int]] = [{} for _ in graphs]
        self.symbols: list[Expression] = []
        self.made: dict[str, Any] = {}  # nodes of expressions, by their text
        self.sizes: dict[Node, list[Expression]] = {}  # sizes that vary, of values
        self.unknown = 0  # how many have a name
        self.divisors: set[int] = around.divisors if around is not None else set()
        self.trees: Trees = around.trees if around is not None else {}  # of the first graph's trace
        self.every: Sequence[Trees] = around.every if around is not None else ()  # of all traces
        self.doubts: list[tuple[Expression, Expression]] = around.doubts if around is not None else []
        self.vectors: dict[tuple[int, ...], Expression] = {}  # the first size that was these numbers
        self.appended: dict[Node, Any] = {}  # operands that calls of control flow are given besides

    def run(self) -> None:
        lists = [[*graph.nodes] for graph in self.graphs]
        for place, row in enumerate(zip(*lists, strict=False)):
            self._same_step(row)
            for nodes, node in zip(self.places, row, strict=True):
                nodes[node] = place
            self.rows.append(row)
            self._arguments(row)
            self._value(row)
        lengths = {len(nodes) for nodes in lists}
        if len(lengths) > 1:
            raise Difference(lists[0][-1], 1, "the program takes more steps for some sizes than for others")

    def _same_step(self, row: tuple[Node, ...]) -> None:
        first = row[0]
        for k, node in enumerate(row[1:], 1):
            if node.op != first.op or (node.op not in ("placeholder", "get_attr") and node.target != first.target):
                raise Difference(first, k, f"the program does {first.target}, and for other sizes {node.target}", node)

    # --- arguments ---------------------------------------------------------------------------------------------------

    def _arguments(self, row: tuple[Node, ...]) -> None:
        first = row[0]
        if first.op == "placeholder":
            return
        if first.op == "get_attr":
            inner = [_attribute(root, node.target) for root, node in zip(self.roots, row, strict=True)]
            if isinstance(inner[0], GraphModule):
                self.inner[first] = _Merged([graph.graph for graph in inner], inner, self.names, self)
                self.inner[first].run()
                inner[0].recompile()
            return
        self._give_sizes(first)
        near = [s for node in first.all_input_nodes for s in self.sizes.get(node, ())]
        before = (first.args, first.kwargs)
        args = self._joined([node.args for node in row], row, near)
        kwargs = self._joined([node.kwargs for node in row], row, near)
        more = self.appended.get(first)
        if more is not None:
            place = _FURTHER[first.target.name()]
            args = (*args[:place], (*args[place], *more) if isinstance(more, tuple) else [*args[place], *more])
        if not _same(before, (args, kwargs)):
            first.args, first.kwargs = args, kwargs

    def _give_sizes(self, node: Node) -> None:
        """Hand sizes that graphs of control flow ask for to them, as further operands."""
        held = [self.inner[x] for x in node.all_input_nodes if x in self.inner]
        wanted = {text: e for inner in held for text, (e, _) in inner.further.items()}
        if not wanted:
            return
        for inner in held:
            for expression in wanted.values():
                inner.placeholder_of(expression)
            order = [inner.further[text][1] for text in wanted]
            for one, other in itertools.pairwise(order):
                one.append(other)
            inner.roots[0].recompile()
        place = _FURTHER[node.target.name()]
        operands = [*node.args[place], *(self._built(e, node) for e in wanted.values())]
        self.appended[node] = type(node.args[place])(operands[len(node.args[place]) :])

    def offered(self, values: Sequence[int]) -> Expression | None:
        """A number for a graph that this one holds, of this one's sizes, or of those around it."""
        found = find(values, self.symbols, [*self.vectors.values()])
        if found is not None or self.around is None:
            return found
        outside = self.around.offered(values)
        if outside is None:
            return None
        return Expression(("node", self.placeholder_of(outside)), outside.values, outside.text, atom=True)

    def placeholder_of(self, expression: Expression) -> Node:
        """The placeholder for a size of the graph around this one."""
        if expression.text not in self.further:
            last = [node for node in self.graphs[0].nodes if node.op == "placeholder"][-1]
            with self.graphs[0].inserting_after(last):
                made = self.graphs[0].create_node("placeholder", f"size_{len(self.further)}")
            made.meta["val"] = SymInt(expression.values[0], expression.text)
            self.further[expression.text] = expression, made
        return self.further[expression.text][1]

    def _joined(self, values: list[Any], row: tuple[Node, ...], near: list[Expression]) -> Any:
        first = values[0]
        kinds = {type(value) for value in values}
        if isinstance(first, Node):
            where = [places.get(value) for places, value in zip(self.places, values, strict=True)]
            odd = next((k for k, place in enumerate(where) if place != where[0]), None)
            if odd is not None:
                raise Difference(row[0], odd, f"{row[0].target} is given other values for other sizes", row[odd])
            return first
        if isinstance(first, (tuple, list)) and len(kinds) == 1:
            odd = next((k for k, value in enumerate(values) if len(value) != len(first)), None)
            if odd is not None:
                raise Difference(row[0], odd, f"{row[0].target} is given more values for some sizes", row[odd])
            parts = [self._joined([*column], row, near) for column in zip(*values, strict=True)]
            return type(first)(parts)
        if isinstance(first, dict) and all(isinstance(v, dict) and [*v] == [*first] for v in values):
            return {key: self._joined([value[key] for value in values], row, near) for key in first}
        if isinstance(first, slice) and len(kinds) == 1:
            return slice(*(self._joined([getattr(v, part) for v in values], row, near)
                           for part in ("start", "stop", "step")))  # fmt: skip
        if all(value is first or (type(value) is type(first) and value == first) for value in values):
            if type(first) in (int, float) and self.trees.get((isinstance(first, float), first)):
                self._doubt(number(first, len(values)), self._alike(values))
            return first
        if any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in values):
            raise Difference(row[0], 1, f"{row[0].target} is given {first!r}, and for other sizes {values[1:]}")
        return self._number(values, row, near)

    def _number(self, values: list[Any], row: tuple[Node, ...], near: list[Expression]) -> Any:
        known = (e for e in (*self.symbols, *near) if e.values == (*values,))
        found = next((e for e in known if type(e.values[0]) is type(values[0])), None)
        if found is None:
            found = self._recorded(values)
        else:
            self._doubt(found, self._alike(values))
        if found is None and LOST in self.trees and all(isinstance(v, int) for v in values):
            found = find(values, (), self._made(self.trees[LOST], len(values)))
        if found is None:
            found = find(values, self.symbols, near)
        if found is None:
            found = find(values, self.symbols, [*self.vectors.values()])
        if found is not None and max(divisors(found), default=0) > _LARGE:
            found = None  # it makes few steps, which others make as well
        if found is None and row[0].target in (aten.slice.Tensor, aten.select.int):
            found = self._clipped(values, row)
        if found is None and all(isinstance(v, int) for v in values):
            made = self._made(itertools.chain.from_iterable(self.trees.values()), len(values))
            found = bounded(tuple(values), [*self.symbols, *self.vectors.values(), *made]) or find(values, (), made)
        if found is None and self.around is not None and all(isinstance(v, int) for v in values):
            outside = self.around.offered(values)
            if outside is not None:
                return self.placeholder_of(outside)
        if found is None:
            raise Difference(
                row[0],
                1,
                f"{row[0].target} is given {values[0]}, and for other sizes {values[1:]}, which could not be told from "
                "the sizes of what it is given",
            )
        return self._built(found, row[0])

    def _recorded(self, values: Sequence[Any]) -> Expression | None:
        for found in (every := self._alike(values)):
            self._doubt(found, every)
            return found
        return recorded(values, self.trees, [*self.symbols, *self.vectors.values()])

    def _alike(self, values: Sequence[Any]) -> list[Expression]:
        return alike(values, self.every, [*self.symbols, *self.vectors.values()])

    def _doubt(self, found: Expression, others: Sequence[Expression]) -> None:
        self.doubts += [(found, other) for other in others if other.text != found.text]

    def _made(self, trees: Iterable[Any], count: int) -> list[Expression]:
        return bound_trees(trees, [*self.symbols, *self.vectors.values()], count)

    def _clipped(self, values: list[Any], row: tuple[Node, ...]) -> Expression | None:
        """An index, or where a slice begins or ends, which is no farther than the dim is long, counted from its end
        where it is negative.
        """
        if any(len(node.args) < 2 for node in row):
            return None
        ends = [_plain(node.args[0].meta["val"])[node.args[1]] for node in row]

        def clipped(column: Sequence[Any]) -> list[int]:
            return [min(v, end) if v >= 0 else max(v + end, 0) for v, end in zip(column, ends, strict=True)]

        wanted = clipped(values)
        if wanted == ends:
            return Expression(("number", sys.maxsize), [sys.maxsize] * len(ends), str(sys.maxsize), atom=True)
        for n in dict.fromkeys(v for v in values if v != sys.maxsize):
            if clipped([n] * len(ends)) == wanted:
                return Expression(("number", n), [n] * len(ends), str(n), atom=True)
        bases = [*self.symbols, *self.vectors.values()]
        found = next((e for e in bases if clipped(e.values) == wanted), None)
        return found or self._recorded(wanted) or find(wanted, self.symbols, bases)

    def _built(self, expression: Expression, before: Node) -> Any:
        """The node of an expression, made before the step that needs it; plain numbers as they are."""
        how = expression.how
        if how[0] in ("number", "node"):
            return how[1]
        key = repr((how[0], how[1], how[2])) if how[0] == "size" else expression.text
        if key in self.made:
            return self.made[key]
        if how[0] == "size":
            made = self._node(before, aten.sym_size.int, (how[1], how[2]), expression, "sym_size_int")
        else:
            self.divisors |= divisors(expression)
            parts = [self._built(part, before) for part in how[1:]]
            made = self._operation(how[0], parts, expression, before)
        self.made[key] = made
        return made

    def _operation(self, sign: str, parts: list[Any], expression: Expression, before: Node) -> Any:
        if sign in _FUNCTIONS:
            return self._node(before, _FUNCTIONS[sign], tuple(parts), expression)
        if sign == "power":
            return self._node(before, operator.pow, (parts[0], -0.5), expression)
        divisor = parts[0] if sign == "reciprocal" else self._node(before, math.sqrt, (parts[0],), expression)
        return self._node(before, operator.truediv, (1, divisor), expression)

    def _node(self, before: Node, target: Any, args: Any, expression: Expression, name: str | None = None) -> Node:
        graph = self.graphs[0]
        with graph.inserting_before(before):
            made = graph.create_node("call_function", target, args, {}, name=name)
        made.meta = {k: v for k, v in before.meta.items() if k in CARRIED}
        value = expression.values[0]
        made.meta["val"] = SymInt(value, expression.text) if isinstance(value, int) else value
        return made

    # --- values ------------------------------------------------------------------------------------------------------

    def _value(self, row: tuple[Node, ...]) -> None:
        if row[0].op == "output":
            return
        values = [node.meta.get("val") for node in row]
        if isinstance(values[0], Tensor):
            self._tensor(row, values)
        elif row[0].op == "placeholder" and isinstance(values[0], int) and len({*values}) > 1:  # a number that is given
            text = self.names.get((*values,), f"s{len(self.symbols)}")
            self.symbols.append(Expression(("node", row[0]), (*map(int, values),), text, atom=True))
        elif row[0].target is aten._local_scalar_dense.default:
            self._read(row[0], (*values,))

    def _read(self, node: Node, values: tuple[Any, ...]) -> None:
        """A number that follows from the values of a tensor."""
        found = Expression(("node", node), values, self._unknown(), atom=True)
        self.vectors.setdefault(values, found)
        self.symbols.append(found)
        if isinstance(values[0], int):
            node.meta["val"] = SymInt(values[0], found.text)

    def _tensor(self, row: tuple[Node, ...], values: list[Any]) -> None:
        node = row[0]
        ranks = {value.ndim for value in values}
        if len(ranks) > 1 or len({value.dtype for value in values}) > 1:
            raise Difference(node, 1, f"{node.target} gives other dtypes or numbers of dims for other sizes")
        shown: list[Any] = []
        for dim, column in enumerate(zip(*(_plain(value) for value in values), strict=True)):
            if len({*column}) == 1:
                shown.append(column[0])
                continue
            text = self._named(column, node, dim)
            found = size(node, dim, column, text)
            self.sizes.setdefault(node, []).append(found)
            self.vectors.setdefault(column, found)
            shown.append(SymInt(column[0], text))
        if any(isinstance(part, SymInt) for part in shown) and hasattr(values[0], "_outline"):
            values[0]._symbolic = tuple(shown)

    def _named(self, column: tuple[int, ...], node: Node, dim: int) -> str:
        """What a size is called: an expression of those that vary by themselves."""
        known = self.vectors.get(column)
        if known is not None:
            return known.text
        if node.op == "placeholder":
            text = self.names.get(column, f"s{len(self.symbols)}")
            self.symbols.append(size(node, dim, column, text))
            return text
        found = find(column, self.symbols, ())
        return found.text if found is not None else self._unknown()

    def _unknown(self) -> str:
        """A name for what follows from values, as PyTorch gives them."""
        outer = self
        while outer.around is not None:
            outer = outer.around
        outer.unknown += 1
        return f"u{outer.unknown - 1}"


_FUNCTIONS: dict[str, Any] = {
    "*": operator.mul, "+": operator.add, "-": operator.sub, "//": operator.floordiv, "/": operator.truediv,
    "%": operator.mod,
    "float": float, "sqrt": math.sqrt, "log": math.log, "abs": operator.abs, "trunc": math.trunc, "round": round,
    "floor": math.floor, "ceil": math.ceil, "min": min, "max": max,
}  # fmt: skip


def _plain(value: Tensor) -> tuple[int, ...]:
    return tuple(map(int, Tensor.size(value)))


def _attribute(root: Any, path: str) -> Any:
    for part in path.split("."):
        root = getattr(root, part)
    return root


def _same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)
