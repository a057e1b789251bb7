"""Graphs without writes: what a step wrote to is a new value from there on, for its views and for what it is a view of.

Each memory has a current value, and each view the step that makes it of what it looks at. A write to a view gives its
base a new value, by the view's inverse (``_inverse.py``); other views are made anew when they are read. Where an
operator has no form without a write, it writes to a copy that nothing else reads.
"""

from __future__ import annotations

import operator
from typing import Any

from tesserack import Tensor
from tesserack.aten.missing import MissingNameError
from tesserack.aten.names import random_names
from tesserack.aten.operators import namespace
from tesserack.fx.export._inverse import put
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node, map_arg

__all__ = ["Functional", "functionalize_inner", "written"]

aten = namespace("aten")
# In place, but of the outline alone: the memory is what it was.
_OUTLINES = {"squeeze_", "unsqueeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "as_strided_"}


def _changes_outline(node: Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    return packet is not None and packet.__name__ in _OUTLINES


def written(node: Node) -> list[Node]:
    """The nodes that a step writes to."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.is_mutable:
        return []
    found: list[Node] = []
    for place, argument in enumerate(schema.arguments):
        value = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        if argument.is_write and value is not None:
            found += [value] if isinstance(value, Node) else [v for v in value if isinstance(v, Node)]
    return found


def viewed(node: Node) -> Node | None:
    """What a step gives a view of, or a list of views; None if it gives what is its own."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        source = node.args[0]
        return source if isinstance(source, Node) and viewed(source) is not None else None
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.is_mutable or not schema.arguments or not schema.returns or not node.args:
        return None
    aliased = schema.arguments[0].alias_info is not None and schema.returns[0].alias_info is not None
    return node.args[0] if aliased and isinstance(node.args[0], Node) else None


class Functional:
    """A graph taken over without its writes: ``graph`` is the new one, ``changed`` what of the old one was written to,
    which :meth:`read` gives the last value of."""

    def __init__(self, graph: Graph) -> None:
        self.graph = Graph()
        self.placeholders: dict[Node, Node] = {}
        self.changed: dict[Node, None] = {}  # whose memory was written to
        self._values: dict[Node, Node] = {}  # nodes of the new graph, by those of the old
        self._source: dict[Node, Node] = {}  # of a view: what it looks at
        self._same: dict[Node, Node] = {}  # of a step that returns what it wrote to: that
        self._version: dict[Node, int] = {}  # of memory, by its base
        self._made_at: dict[Node, int] = {}  # of a view: the version of its base that its value belongs to
        for node in graph.nodes:
            if node.op == "output":
                self.results = map_arg(node.args[0], self.read)
            else:
                self._step(node)

    def original(self, node: Node) -> Node:
        """The node whose value another one returns as it is."""
        while node in self._same:
            node = self._same[node]
        return node

    def base(self, node: Node) -> Node:
        """Whose memory a node's value is."""
        node = self.original(node)
        while node in self._source:
            node = self.original(self._source[node])
        return node

    def read(self, node: Node) -> Node:
        """The current value of a node of the old graph, in the new one."""
        node = self.original(node)
        if node in self._source and self._made_at[node] != self._version.get(self.base(node), 0):
            self._values[node] = self._copied(node)
            self._made_at[node] = self._version.get(self.base(node), 0)
        return self._values[node]

    def new(self, like: Node, target: Any, args: Any, value: Any, kwargs: dict[str, Any] | None = None) -> Node:
        """A step that the old graph did not have, in the place of ``like``."""
        name = target.overloadpacket.__name__ if hasattr(target, "overloadpacket") else "getitem"
        made = self.graph.create_node("call_function", target, tuple(args), kwargs or {}, name=name)
        made.meta = {**like.meta, "val": value}
        return made

    def _copied(self, node: Node) -> Node:
        """The step in the new graph, of current values; of the outline alone, as the view that it is."""
        made = self.graph.node_copy(node, self.read)
        if node.op == "call_function" and _changes_outline(node):
            made.target = getattr(getattr(aten, node.target.overloadpacket.__name__[:-1]), node.target._overloadname)
        return made

    def _step(self, node: Node) -> None:
        targets = written(node)
        if node.op == "placeholder":
            self._values[node] = self.placeholders[node] = self._copied(node)
        elif not targets:
            self._values[node] = self._copied(node)
            source = viewed(node)
            if source is not None:
                self._look(node, source)
        elif _changes_outline(node):
            self._values[node] = self._copied(node)
            self._look(node, targets[0])
        elif node.target.overloadpacket.__name__ == "native_batch_norm":
            self._statistics(node, targets)
        else:
            self._without_write(node, targets)

    def _look(self, node: Node, source: Node) -> None:
        self._source[node] = source
        self._made_at[node] = self._version.get(self.base(node), 0)

    # --- writes ------------------------------------------------------------------------------------------------------

    def _write(self, node: Node, value: Node, at: Node) -> None:
        """From here on the old node's memory holds the value."""
        node = self.original(node)
        place, new = node, value
        while place in self._source:
            source = self.original(self._source[place])
            if place.target is operator.getitem:
                source = self.original(self._source[source])
            new = put(self, at, place, source, new)
            place = source
        self.changed[place] = None
        self._values[place] = new
        self._version[place] = self._version.get(place, 0) + 1
        if node is not place:
            self._values[node], self._made_at[node] = value, self._version[place]

    def _without_write(self, node: Node, targets: list[Node]) -> None:
        target = targets[0]
        if self._without_out(node, targets):
            return
        if node.target.overloadpacket.__name__ == "copy_" and _replaces(node):
            self._write(target, self.read(node.args[1]), node)
            self._same[node] = target
            return
        plain = _plain(node) if len(targets) == 1 and node.args and node.args[0] is target else None
        if plain is not None:
            args, kwargs = map_arg(node.args, self.read), map_arg(node.kwargs, self.read)
            value = _computed(plain, args, kwargs)
            wanted = target.meta["val"]
            if isinstance(value, Tensor) and tuple(value.shape) == tuple(wanted.shape):
                made = self.new(node, plain, args, value, kwargs)
                if value.dtype is not wanted.dtype:
                    made = self.new(node, aten._to_copy.default, (made,), wanted, {"dtype": wanted.dtype})
                self._write(target, made, node)
                self._same[node] = target
                return
        copies = {t: self.new(node, aten.clone.default, (self.read(t),), t.meta["val"]) for t in targets}
        self._values[node] = self.graph.node_copy(node, lambda n: copies[n] if n in copies else self.read(n))
        for t, copy in copies.items():
            self._write(t, copy, node)
        returns = node.target._schema.returns
        if len(targets) == 1 and len(returns) == 1 and returns[0].is_write:
            self._same[node] = target

    def _without_out(self, node: Node, targets: list[Node]) -> bool:
        """The results of an ``out=`` form by the form without; False where none gives the same outlines."""
        form = _without_results(node.target)
        given: list[Any] = []
        for name in _out_names(node.target):
            out = node.kwargs.get(name)
            given += [*out] if isinstance(out, (list, tuple)) else [out]
        if form is None or given != targets:
            return False
        plain = {name: x for name, x in node.kwargs.items() if name not in _out_names(node.target)}
        args, kwargs = map_arg(node.args, self.read), map_arg(plain, self.read)
        value = _computed(form, args, kwargs)
        values = value if isinstance(value, tuple) else (value,)
        if [_outline(v) for v in values] != [_outline(t.meta["val"]) for t in targets]:
            return False
        made = self._values[node] = self.new(node, form, args, value, kwargs)
        parts = (
            [self.new(node, operator.getitem, (made, k), v) for k, v in enumerate(values)]
            if len(values) > 1
            else [made]
        )
        for target, part in zip(targets, parts, strict=True):
            self._write(target, part, node)
        if len(targets) == 1:
            self._same[node] = targets[0]
        return True

    def _statistics(self, node: Node, targets: list[Node]) -> None:
        """Batch norm, whose new statistics come as results; in evaluation there are none."""
        if not node.args[5]:
            args = (*node.args[:5], *node.args[6:])
            plain = aten._native_batch_norm_legit_no_training.default
            self._values[node] = self.new(node, plain, map_arg(args, self.read), node.meta["val"])
            return
        values = (*node.meta["val"], *(t.meta["val"] for t in targets))
        made = self.new(node, aten._native_batch_norm_legit_functional.default, map_arg(node.args, self.read), values)
        self._values[node] = made
        for place, target in enumerate(targets, 3):
            part = self.new(node, operator.getitem, (made, place), target.meta["val"])
            self._write(target, part, node)


def _outline(value: Any) -> Any:
    return (tuple(Tensor.size(value)), value.dtype) if isinstance(value, Tensor) else None


def _out_names(target: Any) -> list[str]:
    """The arguments that an ``out=`` form writes its results to."""
    return [a.name for a in target._schema.arguments if a.is_write and getattr(a, "kwarg_only", False)]


def _without_results(target: Any) -> Any:
    """The form of an operator that makes what its ``out=`` form writes; None if there is none."""
    names = _out_names(target)
    if not names or any(a.is_write and a.name not in names for a in target._schema.arguments):
        return None
    wanted = [(a.name, str(a.type)) for a in target._schema.arguments if a.name not in names]
    packet = target.overloadpacket
    for name in packet.overloads():
        form = getattr(packet, name)
        if [(a.name, str(a.type)) for a in form._schema.arguments] == wanted and not form._schema.is_mutable:
            return form
    return None


def _replaces(node: Node) -> bool:
    """Whether a copy is all that the target is from then on: the source as it is."""
    values = [x.meta["val"] if isinstance(x, Node) else None for x in node.args[:2]]
    one, other = values
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return False
    same = tuple(Tensor.size(one)) == tuple(Tensor.size(other))
    return same and one.dtype is other.dtype and one.device == other.device


def _plain(node: Node) -> Any:
    """The operator without the write; None if there is none."""
    packet = node.target.overloadpacket
    name = packet.__name__
    if packet.namespace != "aten" or not name.endswith("_") or name in random_names():
        return None  # bernoulli(p) is no bernoulli_ of what is overwritten
    found = getattr(aten, name[:-1])
    try:
        found._find()
    except MissingNameError:
        return None
    return getattr(found, node.target._overloadname)


def _computed(target: Any, args: Any, kwargs: Any) -> Any:
    """What an operator gives for the values of nodes; None if it does not take them."""

    def value(node: Node) -> Any:
        return node.meta["val"]

    try:
        return target(*map_arg(args, value), **map_arg(kwargs, value))
    except Exception:  # a form that only the operator in place has
        return None


def functionalize_inner(module: Any) -> None:
    """Take writes out of the graphs that control flow holds; they write to nothing that they are given."""
    for child in [*module.children()]:
        if isinstance(child, GraphModule):
            functionalize_inner(child)
            found = Functional(child.graph)
            found.graph.create_node("output", "output", (found.results,), {})
            child.graph = found.graph
