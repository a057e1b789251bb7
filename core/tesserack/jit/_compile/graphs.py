"""A run as an ``fx`` graph of ATen's operators, below autograd: for compilers that a program brings along."""

from __future__ import annotations

import functools
import operator
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack._tensor.overrides import TorchFunctionMode
from tesserack.aten.modes import TorchDispatchMode
from tesserack.aten.operators import namespace
from tesserack.fx._effects import is_impure_call
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node, map_aggregate
from tesserack.fx.passes.shape_prop import _extract_tensor_metadata
from tesserack.jit._compile.dependencies import Dependencies
from tesserack.jit._compile.errors import NotProved
from tesserack.jit._compile.gradients import check_gradients
from tesserack.jit._compile.look import is_a
from tesserack.jit._compile.watch import Watch
from tesserack.jit._compile.whole import WholeCall, WholeCalls
from tesserack.utils import _pytree as pytree

__all__ = ["GraphRecorder", "hands_out_values"]

# Operators that read values on the host, or whose results have sizes that depend on values.
_ITEM = ("_local_scalar_dense", "item")
_READ = frozenset({*_ITEM, "equal", "is_nonzero", "allclose"})


@functools.cache
def _effects() -> dict[str, dict[str, Any]]:
    return {record["base"]: record["effects"] for record in _native._operators()}


def hands_out_values(base: str) -> bool:
    """Whether the operator gives values of tensors to Python, or results whose sizes depend on values."""
    return base in _READ or bool(_effects().get(base, {}).get("data_dependent"))


class _Recorder(TorchDispatchMode):
    """Runs operators and writes them down."""

    def __init__(self, graph: Graph, watch: Watch) -> None:
        super().__init__()
        self.graph, self.watch = graph, watch
        self.nodes: dict[int, tuple[Tensor, Node]] = {}
        self.values: dict[Node, Tensor] = {}
        self.read: dict[int, Tensor] = {}  # neither arguments nor computed
        self.written: set[int] = set()  # of these, what the run has made of plain numbers
        self.changed = False
        self.last: Node | None = None  # of those that are no steps

    @classmethod
    def is_infra_mode(cls) -> bool:
        """True: it is part of the framework."""
        return True

    def track(self, tensor: Tensor, node: Node) -> None:
        """From now on the tensor is the value of the node."""
        node.meta["tensor_meta"] = _extract_tensor_metadata(tensor)
        self.nodes[id(tensor)] = (tensor, node)
        self.values[node] = tensor

    def node_of(self, value: Any) -> Any:
        """A tensor's node; of one that the program holds, a node that reads it."""
        if isinstance(value, ts.Generator):
            self.watch.refuse("a generator of random numbers is given to an operator")
        if not isinstance(value, Tensor):
            return value
        if id(value) not in self.nodes:
            self.read[id(value)] = value
            with self.graph.inserting_after(self.last) if self.last is not None else self.graph.inserting_before():
                node = self.last = self.graph.create_node("get_attr", f"_tensor_{len(self.read)}")
            self.track(value, node)
        return self.nodes[id(value)][1]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before, self.watch.paused = self.watch.paused, True
        try:
            return self._step(func, args, kwargs or {})
        finally:
            self.watch.paused = before

    def _step(self, func: Any, args: Any, kwargs: Any) -> Any:
        aten = namespace("aten")
        if func is aten.lift_fresh.default:  # what the program does to it must not reach the constant
            func = aten.lift_fresh_copy.default
            self.written.add(id(args[0]))
        name = func._packet.__name__
        self._judge(func, name)
        node_args, node_kwargs = map_aggregate((tuple(args), dict(kwargs)), self.node_of)
        result = func(*args, **kwargs)
        node = self.graph.create_node("call_function", func, node_args, node_kwargs, name=name)
        if isinstance(result, Tensor):
            self.track(result, node)
        elif isinstance(result, (tuple, list)):
            for k, item in enumerate(result):
                if isinstance(item, Tensor):
                    self.track(item, self.graph.call_function(operator.getitem, (node, k)))
        return result

    def _judge(self, func: Any, name: str) -> None:
        if hands_out_values(name):
            own = not self.watch.branches() if name in _ITEM else name not in _READ
            self.watch.refuse(f"{func} hands out values, or sizes that depend on them", own=own)
        random = is_impure_call(func, {}, True) and not func._schema.is_mutable
        self.changed = self.changed or random or func._schema.is_mutable or name == "native_batch_norm"


class _GradientSwitches(TorchFunctionMode):
    """Sees every operator as it is called, above autograd: whether gradients are recorded there as they were."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self.enabled = watch, ts.is_grad_enabled()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if ts.is_grad_enabled() != self.enabled and not self.watch.paused and not self.watch.inside:
            seen = pytree.tree_leaves((args, kwargs, result))
            if any(is_a(x, Tensor) and x.requires_grad for x in seen):  # else it is all the same
                self.watch.refuse(f"{func} is called where gradients are switched on or off", own=True)
        return result


class GraphRecorder:
    """As a context: makes a graph of what is done with these tensors."""

    def __init__(self, watch: Watch, names: list[str], tensors: list[Tensor]) -> None:
        self.graph = Graph()
        self.mode = _Recorder(self.graph, watch)
        self.switches = _GradientSwitches(watch)
        self.outputs: list[Tensor] = []
        self.whole = WholeCalls(watch, self._put, operators=False)
        for name, tensor in zip(names, tensors, strict=True):
            self.mode.last = self.graph.placeholder(name)
            self.mode.track(tensor, self.mode.last)
        graph = self.graph  # not this object, which holds the watch: tensors of the run would stay until garbage goes
        watch.count = lambda: len(graph.nodes)

    def __enter__(self) -> GraphRecorder:
        self._enter()
        self.whole.__enter__()
        return self

    def _enter(self) -> None:
        self.mode.__enter__()
        self.switches.__enter__()

    def _leave(self, *error: Any) -> None:
        self.switches.__exit__(*error)
        self.mode.__exit__(*error)

    def __exit__(self, *error: Any) -> None:
        self.whole.__exit__(*error)
        self._leave(*error)

    def _put(self, call: WholeCall) -> Any:
        mode = self.mode
        args = tuple(mode.node_of(tensor) for tensor in call.tensors)
        self._leave()  # what runs within sees no modes, as it will not later
        try:
            result = call.first()
        finally:
            self._enter()
        node = mode.graph.create_node("call_function", call, args, {}, name=call.__name__)
        for k, output in enumerate(call.outputs):
            mode.track(output, mode.graph.call_function(operator.getitem, (node, k)))
        return result

    @property
    def changed(self) -> bool:
        """Whether something was written, or drawn."""
        return self.mode.changed or bool(self.whole.calls)

    def stop(self, results: Any) -> None:
        """Nothing: what was done is known."""

    def place(self, output: Tensor) -> int:
        """Which of the graph's results a tensor is to be."""
        if not any(output is known for known in self.outputs):
            self.outputs.append(output)
        return next(k for k, known in enumerate(self.outputs) if known is output)

    def finish(self, dependencies: Dependencies, known: dict[int, Tensor]) -> GraphModule:
        """The graph. ``NotProved``"""
        if any(key not in known and key not in self.mode.written for key in self.mode.read):
            raise NotProved("a tensor is used that is held where it cannot be seen")
        if ts.is_grad_enabled() != self.switches.enabled:
            raise NotProved("the run leaves gradients switched on or off", own=True)
        if any(id(output) not in self.mode.nodes for output in self.outputs):
            raise NotProved("a tensor is returned that no operator has computed")
        nodes = [self.mode.nodes[id(output)][1] for output in self.outputs]
        if ts.is_grad_enabled():
            check_gradients(self.graph, self.mode.values, nodes)
        self.graph.output(tuple(nodes))
        return _module(self.graph, self.mode, dependencies)


def _module(graph: Graph, recorder: _Recorder, dependencies: Dependencies) -> GraphModule:
    """The module whose attributes are the tensors that the program holds, called as its modules call them."""
    names: dict[int, str] = {}
    for module in dependencies.tokens.modules.values():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            names.setdefault(id(tensor), name)
    parts: dict[str, Any] = {}
    nodes = {node.target: node for node in graph.nodes if node.op == "get_attr"}
    for number, (key, tensor) in enumerate(recorder.read.items(), 1):
        name = names.get(key, f"_tensor_constant{number}")
        name = name if parts.get(name, tensor) is tensor else f"_tensor_constant{number}"
        parts[name] = tensor
        node = nodes[f"_tensor_{number}"]
        node.target = name
        node._rename(name.replace(".", "_"))
    return GraphModule(parts, graph)
