"""What a write to a view makes of what it looks at."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tesserack.aten.operators import namespace
from tesserack.fx.node import Node, map_arg

__all__ = ["put"]

aten = namespace("aten")
# Views that a scatter of the same arguments writes to.
_SCATTERS = {
    "select": lambda: aten.select_scatter.default,
    "slice": lambda: aten.slice_scatter.default,
    "diagonal": lambda: aten.diagonal_scatter.default,
    "as_strided": lambda: aten.as_strided_scatter.default,
}
# Views that are undone by themselves, and those that are undone by another.
_OWN = {"t", "transpose", "swapaxes", "swapdims", "_conj", "conj", "_neg_view"}
_OTHER: dict[str, Callable[[], Any]] = {
    "view_as_real": lambda: aten.view_as_complex.default,
    "view_as_complex": lambda: aten.view_as_real.default,
}
_NOTHING = {"detach", "alias", "lift", "lift_fresh"}
_RESHAPES = {"view", "squeeze", "unsqueeze", "reshape", "flatten", "unflatten", "squeeze_", "unsqueeze_"}


def put(graph: Any, at: Node, view: Node, source: Node, value: Node) -> Node:
    """The source with ``value`` where the view looks; ``at`` is the step that writes.

    ``RuntimeError`` for a view that cannot be written to so, with the line that does.
    """
    target, now, outline = view.target, graph.read(source), source.meta["val"]

    def new(function: Any, *args: Any, **kwargs: Any) -> Node:
        return graph.new(at, function, args, outline, kwargs)  # type: ignore[no-any-return]

    if target is operator.getitem:
        return _put_part(new, view, now, value)
    name = target.overloadpacket.__name__
    args, kwargs = map_arg(view.args[1:], graph.read), map_arg(view.kwargs, graph.read)
    if name in _NOTHING:
        return value
    if name in _SCATTERS:
        return new(_SCATTERS[name](), now, value, *args, **kwargs)
    if name in _OWN or name.removesuffix("_") in _OWN:
        plain = getattr(aten, name.removesuffix("_")) if name not in _OWN else target.overloadpacket
        return new(getattr(plain, target._overloadname), value, *args)
    if name in _OTHER:
        return new(_OTHER[name](), value)
    if name == "permute":
        order = [d % len(args[0]) for d in args[0]]
        return new(target, value, [order.index(d) for d in range(len(order))])
    if name == "view" and target._overloadname == "dtype":
        return new(target, value, outline.dtype)
    if name in _RESHAPES:
        return new(aten.reshape.default, value, list(outline.shape))
    raise RuntimeError(
        f"export: expected writes to views that can be undone, got one to the result of {target}; write to what it "
        f"looks at, or to a clone\n{at.meta.get('stack_trace', '')}"
    )


def _put_part(new: Callable[..., Node], view: Node, now: Node, value: Node) -> Node:
    """One of the views that an operator gave in a list."""
    whole, place = view.args
    assert isinstance(whole, Node)
    name = whole.target.overloadpacket.__name__
    names = [argument.name for argument in whole.target._schema.arguments]
    given = dict(zip(names, whole.args, strict=False)) | dict(whole.kwargs)
    dim = given.get("dim", 0)
    if name == "unbind":
        return new(aten.select_scatter.default, now, value, dim, place)
    sizes = [part.shape[dim] for part in whole.meta["val"]]
    start = sum(sizes[:place])
    return new(aten.slice_scatter.default, now, value, dim, start, start + sizes[place])
