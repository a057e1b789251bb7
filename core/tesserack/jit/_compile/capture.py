"""A run as a graph, with what it depends on."""

from __future__ import annotations

import functools
import operator
import threading
import types
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor, _native
from tesserack._tensor.overrides import TorchFunctionMode
from tesserack.aten.modes import TorchDispatchMode
from tesserack.fx._effects import is_impure_call
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node, map_aggregate
from tesserack.fx.passes.shape_prop import _extract_tensor_metadata
from tesserack.jit._compile import code as _code
from tesserack.jit._compile.before import Before, cells, inner, tokens_along
from tesserack.jit._compile.errors import NotProved
from tesserack.jit._compile.gradients import check_gradients
from tesserack.jit._compile.state import PLAIN, Tokens, settings
from tesserack.jit._compile.watch import Watch
from tesserack.utils import _pytree as pytree

__all__ = ["Capture", "Inputs", "compiling", "run"]

_state = threading.local()
# Operators that read values on the host, or whose results have sizes that depend on values.
_READ = frozenset({"_local_scalar_dense", "item", "equal", "is_nonzero", "allclose"})


def compiling() -> bool:
    """Whether this thread captures a run."""
    return getattr(_state, "compiling", 0) > 0


@functools.cache
def _effects() -> dict[str, dict[str, Any]]:
    return {record["base"]: record["effects"] for record in _native._operators()}


class Inputs(NamedTuple):
    """The arguments of a call taken apart: its tensors, each once, and what they depend on besides."""

    tensors: list[Tensor]
    token: Any
    tokens: Tokens

    @classmethod
    def of(cls, args: Any, kwargs: Any, keep: bool = True) -> Inputs:
        """Those of a call. ``NotProved`` for arguments whose changes cannot be seen."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tokens = Tokens(keep)
        places: dict[int, int] = {}
        tensors: list[Tensor] = []
        found = []
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                if id(leaf) not in places:
                    places[id(leaf)] = len(tensors)
                    tensors.append(leaf)
                found.append((places[id(leaf)], tokens.tensor(leaf, identity=False)))
            else:
                found.append(tokens.of(leaf))
        return cls(tensors, (str(spec), tuple(found), tuple(settings())), tokens)


class Capture(NamedTuple):
    """A graph of the tensors of a call; how its results are put together; what else it depends on; and whether it may
    run at once, which it may not where the run has changed something.
    """

    module: GraphModule
    results: Any
    spec: Any
    dependencies: Dependencies
    changed: bool
    kept: Any


class Dependencies:
    """Everything outside of the arguments that a run has read, with its token."""

    def __init__(self, roots: list[Any], watch: Watch, inputs: Tokens) -> None:
        self.roots, self.codes = roots, watch.codes
        self.reads = {code: _code.check(code) for code in watch.codes}
        self.attributes = frozenset(name for reads in self.reads.values() for name in reads.attributes)
        self.inputs = inputs
        self.tokens = Tokens()
        self.token = self._token(self.tokens)

    def hold(self) -> bool:
        """Whether all is as it was."""
        try:
            return bool(self._token(Tokens(keep=False)) == self.token)
        except NotProved:
            return False

    def _token(self, tokens: Tokens) -> Any:
        found = [tokens.of(root) for root in self.roots]
        for code, space in self.codes.items():
            for read in self.reads[code].globals:
                found.append(self._of_global(tokens, space, read))
        found += self._closures(tokens)
        classes = {**tokens.classes, **self.inputs.classes}
        classes.update((id(type(m)), type(m)) for t in (tokens, self.inputs) for m in t.modules.values())
        done: set[int] = set()
        while len(done) < len(classes):  # classes may lead to others
            for key in [key for key in classes if key not in done]:
                done.add(key)
                found.append(tokens.of_class(classes[key], self.attributes))
            classes.update(tokens.classes)
        found += self._closures(tokens)
        return tuple(found)

    @staticmethod
    def _of_global(tokens: Tokens, space: dict[str, Any], read: _code.Read) -> Any:
        try:
            return tokens_along(tokens, _code.resolve(space, read))
        except NotProved as error:
            raise NotProved(f"line {read.line} reads {'.'.join((read.name, *read.path))}: {error.reason}") from None

    def _closures(self, tokens: Tokens) -> list[Any]:
        """What functions that ran close over: cells of functions that ran as well are theirs."""
        made = {const for code in self.codes for const in inner(code)}
        found: list[Any] = []
        pending = [code for code in self.codes if code.co_freevars and code not in made]
        for code in pending:
            functions = [*tokens.functions.get(code, ()), *self.inputs.functions.get(code, ())]
            if functions:
                for function in functions:
                    found += [tokens.of(value) for value in cells(function)]
        return found

    def ran(self) -> list[types.FunctionType]:
        """The functions whose codes ran, as far as they are known."""
        known = {**self.inputs.functions, **self.tokens.functions}
        return [function for code in self.codes for function in known.get(code, ())]

    def check_closures(self) -> None:
        """``NotProved`` where a function that closes over something ran, and which one is not known."""
        made = {const for code in self.codes for const in inner(code)}
        for code in self.codes:
            known = code in self.tokens.functions or code in self.inputs.functions
            if code.co_freevars and code not in made and not known:
                raise NotProved(
                    f"{code.co_filename}:{code.co_firstlineno} ({code.co_name}) closes over something unknown"
                )


class _Recorder(TorchDispatchMode):
    """Runs operators and writes them down."""

    def __init__(self, graph: Graph, watch: Watch) -> None:
        super().__init__()
        self.graph, self.watch = graph, watch
        self.nodes: dict[int, tuple[Tensor, Node]] = {}
        self.values: dict[Node, Tensor] = {}
        self.read: dict[int, Tensor] = {}  # neither arguments nor computed
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
        effects = _effects().get(name, {})
        if name in _READ or effects.get("data_dependent"):
            self.watch.refuse(f"{func} hands out values, or sizes that depend on them")
        random = is_impure_call(func, {}, True) and not func._schema.is_mutable
        self.changed = self.changed or random or func._schema.is_mutable or name == "native_batch_norm"


class _GradientSwitches(TorchFunctionMode):
    """Sees every operator as it is called, above autograd: whether gradients are recorded there as they were."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self.enabled = watch, ts.is_grad_enabled()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if ts.is_grad_enabled() != self.enabled:
            self.watch.refuse(f"{func} is called where gradients are switched on or off")
        return func(*args, **(kwargs or {}))


def run(
    function: Any, roots: list[Any], args: Any, kwargs: Any, seeds: dict[types.CodeType, dict[str, Any]]
) -> tuple[Any, Capture | NotProved]:
    """The result of a call, and its capture, or why there is none. Raises what the call raises.

    Codes that ran are added to ``seeds``: for a further try they are known.
    """
    try:
        inputs = Inputs.of(args, kwargs)
        before = Tokens().of(tuple(roots))
        read = Before([*roots, *pytree.tree_leaves((args, kwargs))], seeds)
    except NotProved as error:
        return function(*args, **kwargs), error
    watch, graph = Watch(), Graph()
    recorder = _Recorder(graph, watch)
    names = _names(roots[0], len(inputs.tensors))
    for name, tensor in zip(names, inputs.tensors, strict=True):
        recorder.last = graph.placeholder(name)
        recorder.track(tensor, recorder.last)
    _state.compiling = getattr(_state, "compiling", 0) + 1
    try:
        with recorder, _GradientSwitches(watch), watch:
            result = function(*args, **kwargs)
    finally:
        _state.compiling -= 1
    try:
        if watch.reason is not None:
            raise watch.reason
        if Tokens().of(tuple(roots)) != before or Inputs.of(args, kwargs).token != inputs.token:
            raise NotProved("the run changes what it reads: an attribute, a list, or how a tensor lies in memory")
        dependencies = Dependencies(roots, watch, inputs.tokens)
        dependencies.check_closures()
        read.check(watch.codes, dependencies.ran())
        return result, _captured(recorder, dependencies, inputs, result)
    except NotProved as error:
        seeds.update(watch.codes)
        return result, error


def _names(function: Any, count: int) -> list[str]:
    code = getattr(getattr(function, "forward", function), "__code__", None)
    names = [n for n in code.co_varnames[: code.co_argcount] if n != "self"] if code is not None else []
    return names if len(names) == count else [f"arg{k}" for k in range(count)]


def _captured(recorder: _Recorder, dependencies: Dependencies, inputs: Inputs, result: Any) -> Capture:
    known = {**dependencies.tokens.tensors, **inputs.tokens.tensors}
    held = {**dependencies.tokens.kept, **inputs.tokens.kept}
    given = {id(tensor): k for k, tensor in enumerate(inputs.tensors)}
    for key in recorder.read:
        if key not in known:
            raise NotProved("a tensor is used that is made from plain numbers, or held where it cannot be seen")
    leaves, spec = pytree.tree_flatten(result)
    outputs: list[Tensor] = []
    results = []
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            if not (isinstance(leaf, PLAIN) or id(leaf) in held):
                raise NotProved(f"an object of class {type(leaf).__qualname__} is returned, which the run has made")
            results.append(("value", leaf))
        elif id(leaf) in given:
            results.append(("input", given[id(leaf)]))
        elif id(leaf) in known:
            results.append(("value", leaf))
        elif id(leaf) in recorder.nodes:
            if not any(leaf is output for output in outputs):
                outputs.append(leaf)
            results.append(("output", next(k for k, output in enumerate(outputs) if output is leaf)))
        else:
            raise NotProved("a tensor is returned that no operator has computed")
    _refuse_held_containers(result, held)
    graph = recorder.graph
    if ts.is_grad_enabled():
        check_gradients(graph, recorder.values, [recorder.nodes[id(output)][1] for output in outputs])
    graph.output(tuple(recorder.nodes[id(output)][1] for output in outputs))
    module = _module(graph, recorder, dependencies)
    return Capture(module, results, spec, dependencies, recorder.changed, inputs)


def _refuse_held_containers(result: Any, held: dict[int, Any]) -> None:
    if isinstance(result, (list, dict)) and id(result) in held:
        raise NotProved("a list or dict is returned that the program holds")
    for item in result.values() if isinstance(result, dict) else result if isinstance(result, (list, tuple)) else ():
        _refuse_held_containers(item, held)


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
