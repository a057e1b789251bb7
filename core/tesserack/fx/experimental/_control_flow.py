"""Control flow under :func:`make_fx`: one node each, whose functions are graph modules of their own.

What a function closes over, a tensor of the graph around it or one that the program holds, becomes a further operand,
and a placeholder of the function's graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.aten.fake.fake_tensor import FakeTensor, FakeTensorMode
from tesserack.aten.higher_order import HigherOrderOperator
from tesserack.aten.modes import _only, stack
from tesserack.autograd import Function
from tesserack.fx.experimental._proxy_tracer import ProxyTorchDispatchMode, reenter_make_fx
from tesserack.fx.graph_module import GraphModule
from tesserack.ops.control_flow import associative_scan_op, cond_op, map_impl, scan_op, while_loop_op
from tesserack.ops.control_flow._checks import check_carry, check_same

__all__: list[str] = []


class _Inner:
    """The graphs of the functions of one call, with the same further operands for all of them."""

    def __init__(self, op: HigherOrderOperator, mode: ProxyTorchDispatchMode) -> None:
        self.op, self.mode = op, mode
        self.graphs: list[tuple[str, GraphModule, list[Tensor]]] = []

    def trace(self, f: Callable[..., Any], args: Sequence[Any], name: str) -> list[Any]:
        """The results of a function, as fake tensors, whose graph is one of those of the call."""
        _refuse_gradients(self.op, args)
        graph, lifted, results = reenter_make_fx(f, self.mode, args, name)
        _refuse_gradients(self.op, lifted)
        _refuse_writes(self.op, graph)
        self.graphs.append((name, graph, lifted))
        return results

    def share(self) -> list[Tensor]:
        """What the graphs are all given besides their arguments, in one order."""
        shared: dict[int, Tensor] = {}
        for _, _, lifted in self.graphs:
            shared.update((id(x), x) for x in lifted)
        for _, graph, lifted in self.graphs:
            _order(graph, lifted, [*shared.values()])
        return [*shared.values()]

    def finished(self) -> tuple[list[Any], list[Tensor]]:
        """Nodes that read the graphs, and what they all are given besides their arguments."""
        shared = self.share()
        return [self.mode.tracer.attribute(name, graph) for name, graph, _ in self.graphs], shared


def _order(graph: GraphModule, lifted: list[Tensor], shared: list[Tensor]) -> None:
    """Give a graph a placeholder for each shared operand, in their order."""
    found = [node for node in graph.graph.nodes if node.op == "placeholder"]
    given, own = found[: len(found) - len(lifted)], found[len(found) - len(lifted) :]
    known = {id(x): node for x, node in zip(lifted, own, strict=True)}
    last = given[-1] if given else None
    for place, x in enumerate(shared):
        node = known.get(id(x))
        if node is None:
            with graph.graph.inserting_before():
                node = graph.graph.create_node("placeholder", f"unread_{place}", name=f"unread_{place}")
            node.meta["val"] = x
        before = last.next if last is not None else next(iter(graph.graph.nodes))
        if before is not node:
            before.prepend(node)
        last = node
    graph.recompile()


def _refuse_gradients(op: HigherOrderOperator, values: Sequence[Any]) -> None:
    if ts.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in values):
        raise RuntimeError(
            f"{op}: expected no gradients to be recorded while it becomes a node, got an operand that requires them; "
            "how many steps to go back is not known: trace under tesserack.no_grad(), or use scan"
        )


def _refuse_writes(op: HigherOrderOperator, graph: GraphModule) -> None:
    given = {node for node in graph.graph.nodes if node.op in ("placeholder", "get_attr")}
    for node in graph.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.is_mutable:
            continue
        for argument, value in zip(schema.arguments, node.args, strict=False):
            if argument.is_write and value in given:
                raise RuntimeError(
                    f"{op}: expected functions that do not write to what they are given or close over, got "
                    f"{node.target}; clone it first, and return what changed\n{node.meta.get('stack_trace', '')}"
                )


def _like(results: Sequence[Any], sizes: Sequence[tuple[int, ...]] | None = None) -> list[Any]:
    """Fresh fake tensors like these, with other sizes if given: the results of the node."""
    mode = next((m for m in reversed(stack()) if isinstance(m, FakeTensorMode)), None)
    made: list[Any] = []
    for place, x in enumerate(results):
        if not isinstance(x, Tensor):
            made.append(x)
            continue
        shape = tuple(x.shape) if sizes is None else sizes[place]
        inner = ts.empty(shape, dtype=x.dtype, device="meta")
        made.append(FakeTensor(mode or x.fake_mode, inner, x.device))  # type: ignore[attr-defined]
    return made


def _finish(inner: _Inner, args: Callable[[list[Any], list[Tensor]], tuple[Any, ...]], fakes: list[Any]) -> list[Any]:
    """The node, and its results: computed where there is data, else fake ones."""
    nodes, shared = inner.finished()
    tracer = inner.mode.tracer
    given = args(nodes, shared)
    faked = any(isinstance(m, FakeTensorMode) for m in stack())
    results = fakes
    if not faked:
        graphs = iter([graph for _, graph, _ in inner.graphs])
        real = [next(graphs) if node in nodes else node for node in given]
        results = list(inner.op.compute(*real))
    tracer.step(inner.op, tracer.arguments(given), {}, inner.op.name(), results)
    return results


def _by_steps(op: HigherOrderOperator, mode: ProxyTorchDispatchMode, f: Any, given: Sequence[Any], *args: Any) -> Any:
    """A loop of known length whose gradients are recorded, by its steps, which are differentiated; else None."""
    if not ts.is_grad_enabled() or not mode.tracer.outermost().records_gradients:
        return None
    inner = _Inner(op, mode)
    with ts.no_grad():
        inner.trace(f, given, "tried")
    if not any(isinstance(x, Tensor) and x.requires_grad for x in (*args, *given, *inner.share())):
        return None
    with _only([*stack(), mode]):
        return list(op.compute(f, *args))


class _Branches(Function):
    """``cond`` where gradients are recorded: in the backward pass it is one of the branches' gradients."""

    @staticmethod
    def forward(ctx: Any, pred: Any, true_graph: Any, false_graph: Any, *operands: Any) -> Any:
        """The node, without gradients of its own."""
        ctx.graphs = true_graph, false_graph
        ctx.save_for_backward(pred, *operands)
        return tuple(cond_op(pred, true_graph, false_graph, operands))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Another node, of what was given to the first and of the gradients."""
        pred, *operands = ctx.saved_tensors
        found = cond_op(pred, *(_pullback(graph, len(operands)) for graph in ctx.graphs), (*operands, *grads))
        return None, None, None, *found


def _pullback(graph: GraphModule, count: int) -> Callable[..., list[Any]]:
    """Gradients of a graph's operands from those of its results; zeros where there are none."""

    def gradients(*values: Any) -> list[Any]:
        with ts.enable_grad():
            leaves = [x.detach() for x in values[:count]]
            wanted = [x.requires_grad_() for x in leaves if x.is_floating_point() or x.is_complex()]
            pairs = [(y, g) for y, g in zip(graph(*leaves), values[count:], strict=True) if y.requires_grad]
            found: Any = [None] * len(wanted)
            if pairs:
                outputs, given = zip(*pairs, strict=True)
                found = ts.autograd.grad(outputs, wanted, given, allow_unused=True)
        known = iter(found)
        rows = [next(known) if x.requires_grad else None for x in leaves]
        return [ts.zeros_like(x) if g is None else g for x, g in zip(values[:count], rows, strict=True)]

    return gradients


def _recorded(mode: ProxyTorchDispatchMode, pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> Any:
    """A call whose gradients are recorded; None if none are, of operands and of what the branches close over."""
    if not ts.is_grad_enabled() or not mode.tracer.outermost().records_gradients:
        return None
    inner = _Inner(cond_op, mode)
    with ts.no_grad():
        check_same(
            "cond",
            inner.trace(true_fn, operands, "true_graph"),
            inner.trace(false_fn, operands, "false_graph"),
            ("true_fn", "false_fn"),
        )
    shared = inner.share()
    if not any(isinstance(x, Tensor) and x.requires_grad for x in (*operands, *shared)):
        return None
    true_graph, false_graph = (graph for _, graph, _ in inner.graphs)
    with _only([*stack(), mode]):
        return list(_Branches.apply(pred, true_graph, false_graph, *operands, *shared))


@cond_op.py_impl(ProxyTorchDispatchMode)
def _cond(mode: ProxyTorchDispatchMode, pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> Any:
    recorded = _recorded(mode, pred, true_fn, false_fn, operands)
    if recorded is not None:
        return recorded
    inner = _Inner(cond_op, mode)
    taken = inner.trace(true_fn, operands, "true_graph")
    other = inner.trace(false_fn, operands, "false_graph")
    check_same("cond", taken, other, ("true_fn", "false_fn"))
    return _finish(inner, lambda graphs, shared: (pred, *graphs, (*operands, *shared)), _like(taken))


@while_loop_op.py_impl(ProxyTorchDispatchMode)
def _while_loop(mode: ProxyTorchDispatchMode, cond_fn: Any, body_fn: Any, carried: Any, additional: Any = ()) -> Any:
    for x in carried:
        if not isinstance(x, Tensor):
            raise RuntimeError(
                f"while_loop: expected tensors as what is carried while it becomes a node, got {type(x).__name__} "
                f"{x!r}, whose value would be the first one's in every step; use tesserack.tensor({x!r})"
            )
    inner = _Inner(while_loop_op, mode)
    answer = inner.trace(_Alone(cond_fn), (*carried, *additional), "while_loop_cond_graph")
    if not (isinstance(answer[0], Tensor) and not answer[0].ndim and answer[0].dtype is ts.bool):
        raise RuntimeError(
            f"while_loop: cond_fn must return a boolean scalar tensor or a boolean but got {answer[0]!r}, while it "
            "becomes a node"
        )
    found = inner.trace(body_fn, (*carried, *additional), "while_loop_body_graph")
    check_carry("while_loop", carried, found, "body_fn")
    return _finish(inner, lambda graphs, shared: (*graphs, tuple(carried), (*additional, *shared)), _like(found))


@scan_op.py_impl(ProxyTorchDispatchMode)
def _scan(mode: ProxyTorchDispatchMode, combine_fn: Any, init: Any, xs: Any, additional: Any = ()) -> Any:
    steps = _by_steps(scan_op, mode, combine_fn, (*init, *_slices(xs), *additional), init, xs, additional)
    if steps is not None:
        return steps
    inner = _Inner(scan_op, mode)
    found = inner.trace(combine_fn, (*init, *_slices(xs), *additional), "scan_combine_graph")
    check_carry("scan", init, found[: len(init)], "combine_fn's first value")
    sizes = [_shape(x) for x in found[: len(init)]]
    sizes += [(int(xs[0].shape[0]), *_shape(x)) for x in found[len(init) :]]
    return _finish(
        inner, lambda graphs, shared: (*graphs, list(init), list(xs), [*additional, *shared]), _like(found, sizes)
    )


@map_impl.py_impl(ProxyTorchDispatchMode)
def _map(mode: ProxyTorchDispatchMode, f: Any, xs: Any, pos_args: Any = ()) -> Any:
    steps = _by_steps(map_impl, mode, f, (*_slices(xs), *pos_args), xs, pos_args)
    if steps is not None:
        return steps
    inner = _Inner(map_impl, mode)
    found = inner.trace(f, (*_slices(xs), *pos_args), "body_graph")
    sizes = [(int(xs[0].shape[0]), *_shape(x)) for x in found]
    return _finish(inner, lambda graphs, shared: (*graphs, list(xs), [*pos_args, *shared]), _like(found, sizes))


@associative_scan_op.py_impl(ProxyTorchDispatchMode)
def _associative_scan(mode: ProxyTorchDispatchMode, combine_fn: Any, xs: Any, additional: Any = ()) -> Any:
    pair = [*_slices(xs), *_slices(xs)]
    steps = _by_steps(associative_scan_op, mode, combine_fn, (*pair, *additional), xs, additional)
    if steps is not None:
        return steps
    inner = _Inner(associative_scan_op, mode)
    found = inner.trace(combine_fn, (*pair, *additional), "associative_scan_combine_graph")
    check_same("associative_scan", pair[: len(xs)], found, ("xs", "combine_fn"))
    return _finish(
        inner, lambda graphs, shared: (*graphs, list(xs), [*additional, *shared]), _like(found, [_shape(x) for x in xs])
    )


class _Alone:
    """A function whose one result comes without a list around it."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f = f

    def __call__(self, *args: Any) -> Any:
        found = self.f(*args)
        return found[0] if isinstance(found, (list, tuple)) and len(found) == 1 else found


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(map(int, x.shape)) if isinstance(x, Tensor) else ()


def _slices(xs: Sequence[Any]) -> list[Any]:
    """The first slice of each, without a trace of how it was taken."""
    return [x.select(0, 0) for x in xs]
