"""One run of a program on fake tensors, as a graph without writes, whose inputs are all placeholders."""

from __future__ import annotations

import contextlib
import inspect
import keyword
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.overrides import TorchFunctionMode
from tesserack._tensor.subclass import has_no_memory
from tesserack.aten.fake.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from tesserack.aten.modes import disabled_modes
from tesserack.aten.names import random_names
from tesserack.aten.operators import namespace
from tesserack.aten.whole import whole_overloads
from tesserack.fx.experimental._proxy_tracer import (
    PACKAGE,
    ProxyTorchDispatchMode,
    PythonKeyTracer,
    shown_frames,
)
from tesserack.fx.export._asserts import ASSERT, reader, states
from tesserack.fx.export._doubts import Doubt
from tesserack.fx.export._errors import ExportError, ways_out
from tesserack.fx.export._functional import Functional, functionalize_inner, written
from tesserack.fx.export._side_effects import SideEffects
from tesserack.fx.export._unknown import Unknown
from tesserack.fx.export._watch import watching
from tesserack.fx.export.graph_signature import InputKind
from tesserack.fx.graph import Graph
from tesserack.fx.node import Node
from tesserack.jit.compiler import exporting
from tesserack.library.open_sizes import leaving_open
from tesserack.nn.modules.module import (
    Module,
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from tesserack.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

__all__ = ["Program", "Trace", "line_of", "remove_unread", "trace"]


@dataclass
class Program:
    """What is exported: a module with its parameters and buffers, and example inputs, as leaves with names."""

    module: Module
    leaves: list[Any]
    in_spec: TreeSpec
    names: list[str]
    parameters: list[tuple[str, Tensor]]
    buffers: list[tuple[str, Tensor, bool]]
    constants: dict[int, str]  # tensors that are plain attributes of modules, by identity
    decompositions: dict[Any, Any] = field(default_factory=dict)
    whole: frozenset[Any] = field(default_factory=whole_overloads)  # composed operators that stay as they are
    traces: dict[Any, Any] = field(default_factory=dict)  # made so far, by the sizes that vary
    fixed: dict[tuple[int, int], str] = field(default_factory=dict)  # what fixes sizes that were to vary


@dataclass
class Trace:
    """The graph of one run, its placeholders by kind, what it wrote to, and what it returned."""

    graph: Graph
    root: Module
    inputs: list[tuple[InputKind, str, Node]]
    constants: list[tuple[str, Tensor]]
    changed: list[tuple[InputKind, str, Node]]
    results: list[Any]
    out_spec: TreeSpec
    unknown: Unknown
    divisors: set[int] = field(default_factory=set)  # of expressions, once it is merged with others
    doubts: list[Doubt] = field(default_factory=list)


class _Tracer(PythonKeyTracer):
    """Constants become placeholders; they are noted with their names."""

    records_gradients = False

    def __init__(self, program: Program, mode: FakeTensorMode) -> None:
        super().__init__()
        self.program, self.mode = program, mode
        self.found: list[tuple[str, Tensor, Node]] = []
        self.lifted_constants = 0

    def placeholder(self, name: str, value: Any) -> Node:
        node = super().placeholder(name, value)
        node.target = node.name  # each has one of its own, as arguments have, whatever modules are called
        return node

    def constant(self, tensor: Tensor) -> Node:
        """A placeholder for a tensor that the program holds."""
        if isinstance(tensor, FakeTensor):
            raise ExportError(
                f"export: a tensor of shape {tuple(tensor.shape)} is used that another trace has left behind, in an "
                "attribute or a global; do not keep what the program computes outside of it"
            )
        name = self.program.constants.get(id(tensor))
        if name is None:
            name = f"lifted_tensor_{self.lifted_constants}"
            self.lifted_constants += 1
        node = self.lift(f"c_{name.replace('.', '_')}", tensor)
        self.found.append((name, tensor, node))
        return node

    def is_form(self, tensor: Tensor, value: Any) -> bool:
        """Whether a value is the fake form of a tensor of the program's: the same, written to in place."""
        with disabled_modes():
            return self.mode.from_tensor(tensor) is value

    def lift(self, name: str, tensor: Tensor) -> Node:
        """A placeholder for a tensor of the program's: its fake form is the same value."""
        with disabled_modes():
            fake = self.mode.from_tensor(tensor)
        while name in self.program.names:  # what the user calls so stays called so
            name += "_1"
        node = self.placeholder(name, fake)
        self.track(tensor, node)
        return node


@contextlib.contextmanager
def _module_stack(tracer: PythonKeyTracer, module: Module) -> Iterator[None]:
    """Within it nodes know the modules that they are from."""
    names = {id(m): name for name, m in module.named_modules()}
    calls: dict[str, int] = {}
    before: list[dict[str, tuple[str, str]]] = []

    def enter(m: Module, args: Any) -> None:
        before.append(tracer.module_stack)
        name = names.get(id(m))
        if name is None:
            return
        times = calls[name] = calls.get(name, -1) + 1
        path = f"{name}@{times}" if times else name
        key = f"L__self__{path}"
        kind = f"{type(m).__module__}.{type(m).__qualname__}"
        tracer.module_stack = {**tracer.module_stack, key: (path, kind)}

    def leave(m: Module, args: Any, result: Any) -> None:
        tracer.module_stack = before.pop()

    handles = register_module_forward_pre_hook(enter), register_module_forward_hook(leave)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Called(TorchFunctionMode):
    """Notes which function of the program's a node comes from, and which call of it."""

    def __init__(self, tracer: PythonKeyTracer) -> None:
        super().__init__()
        self.tracer = tracer
        self.counts: dict[str, int] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", type(func).__name__)
        count = self.counts[name] = self.counts.get(name, 0) + 1
        kind = "function" if inspect.isfunction(func) else "builtin_function_or_method"
        before, self.tracer.called = self.tracer.called, (f"{name}_{count}", f"{kind}.{name}")
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.tracer.called = before


def trace(program: Program, sizes: dict[tuple[int, int], int], unknown: Unknown) -> Trace:
    """Run the program once, with these sizes in the place of the example's, and ``unknown`` for what follows from data.

    Raises:
        ExportError: for what cannot be seen or is not known without data, with the program's line.
    """
    mode = FakeTensorMode()
    mode.unknown, watch = unknown, unknown.watch
    if sizes:
        mode.shown_sizes = watch.shown
    tracer = _Tracer(program, mode)
    inputs = [(InputKind.PARAMETER, name, tracer.lift(f"p_{_flat(name)}", x)) for name, x in program.parameters]
    inputs += [(InputKind.BUFFER, name, tracer.lift(f"b_{_flat(name)}", x)) for name, x, _ in program.buffers]
    leaves = [_resized(mode, leaf, place, sizes) for place, leaf in enumerate(program.leaves)]
    users = [tracer.placeholder(name, leaf) for name, leaf in zip(program.names, leaves, strict=True)]
    inputs += [(InputKind.USER_INPUT, name, node) for name, node in zip(program.names, users, strict=True)]
    proxies = ProxyTorchDispatchMode(tracer, "fake", decomposition_table=program.decompositions)
    proxies.whole = program.whole
    effects, state = SideEffects(program.module), ts.get_rng_state().tolist()
    args, kwargs = tree_unflatten(leaves, program.in_spec)
    watch.state, watch.reader = states(tracer), reader(tracer)
    unknown.begins = lambda: setattr(mode, "shown_sizes", watch.shown)
    with (
        _within(program, tracer),
        _unrecorded(program),
        effects,
        mode,
        proxies,
        _Called(tracer),
        ts.enable_grad(),
        watching(watch),
        leaving_open(unknown),
    ):
        flat, out_spec = tree_flatten(program.module(*args, **kwargs))
        nodes = [_result(tracer, x) for x in flat]
        assigned = [(name, tracer.node_of(x)) for name, x in effects.buffers(tracer.is_form)]
    effects.settle(tensor for _, tensor, _ in tracer.found)
    mode.shown_sizes = mode.unknown = None
    if ts.get_rng_state().tolist() != state:
        raise ExportError(
            "export: random numbers were drawn that are no step of the graph, by what draws them outside of operators; "
            "draw them by rand or randn and go on from there"
        )
    tracer.graph.create_node("output", "output", ((*nodes, *(node for _, node in assigned)),), {})
    return _finished(tracer, inputs, out_spec, [name for name, _ in assigned], unknown)


@contextlib.contextmanager
def _unrecorded(program: Program) -> Iterator[None]:
    """Within it no parameter requires gradients, so that none are recorded, and whether they would be is seen."""
    wanting = [p for _, p in program.parameters if p.requires_grad]
    for p in wanting:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in wanting:
            p.requires_grad_()


def _detach(graph: Graph) -> None:
    """What the program computes within ``no_grad`` has no gradient where it is read outside of it."""
    for node in [*graph.nodes]:
        value = node.meta.get("val")
        if node.meta.get("grad_enabled", True) or not isinstance(value, Tensor):
            continue
        if not (value.is_floating_point() or value.is_complex()):
            continue
        outside = [user for user in node.users if user.meta.get("grad_enabled", True)]
        if outside:
            with graph.inserting_after(node):
                made = graph.create_node("call_function", _DETACH, (node,), {}, name="detach")
            made.meta = {**node.meta}
            for user in outside:
                user.replace_input_with(node, made)


_DETACH = namespace("aten").detach.default


def _flat(name: str) -> str:
    return name.replace(".", "_")


@contextlib.contextmanager
def _within(program: Program, tracer: PythonKeyTracer) -> Iterator[None]:
    """Export is under way; errors are told with the program's line."""
    try:
        with exporting(), _module_stack(tracer, program.module):
            yield
    except DataDependentOutputException as error:
        raise ways_out("number", error, line_of(error)) from error
    except DynamicOutputShapeException as error:
        raise ways_out("sizes", error, line_of(error)) from error
    except (TypeError, RuntimeError, BufferError) as error:
        if "tensor with memory" not in str(error) and "to numpy" not in str(error):
            raise
        raise ways_out("python", error, line_of(error)) from error


def line_of(error: BaseException) -> str:
    """The program's line that an error comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    found = [f for f in frames if not f.filename.startswith((PACKAGE, "<frozen"))]
    return shown_frames([(f.filename, f.lineno or 0, f.name) for f in found[-1:]])


def _resized(mode: FakeTensorMode, leaf: Any, place: int, sizes: dict[tuple[int, int], int]) -> Any:
    """A fake tensor as an input, with the sizes of this trace."""
    if not isinstance(leaf, Tensor):
        return leaf
    if isinstance(leaf, FakeTensor) or has_no_memory(leaf):
        leaf = leaf.detach()
    shape = [sizes.get((place, dim), int(n)) for dim, n in enumerate(Tensor.size(leaf))]
    order = sorted(range(leaf.ndim), key=lambda d: -leaf.stride(d))
    with disabled_modes():
        outline = ts.empty_permuted(shape, order, dtype=leaf.dtype, device="meta")
        return FakeTensor(mode, outline, leaf.device)


def _result(tracer: PythonKeyTracer, value: Any) -> Any:
    if isinstance(value, Tensor):
        return tracer.node_of(value)
    if value is None or isinstance(value, (int, float, bool, str)):
        return value
    raise ExportError(
        f"export: expected a program that returns tensors, numbers and text in tuples, lists and dicts, got "
        f"{type(value).__name__}; register its class by tesserack.export.register_dataclass or "
        "tesserack.utils._pytree.register_pytree_node"
    )


def _finished(tracer: _Tracer, inputs: list[Any], out_spec: TreeSpec, assigned: list[str], unknown: Unknown) -> Trace:
    """The graph without writes, its placeholders in order, and without steps that nothing reads."""
    functionalize_inner(tracer.root)
    found = Functional(tracer.graph)
    constants = [(InputKind.CONSTANT_TENSOR, name, node) for name, _, node in tracer.found]
    every = [x for x in inputs if x[0] is not InputKind.USER_INPUT] + constants
    every += [x for x in inputs if x[0] is InputKind.USER_INPUT]
    placeholders = found.placeholders
    changed = [(kind, name, found.read(node)) for kind, name, node in every if node in found.changed]
    count = len(found.results) - len(assigned)
    changed += [(InputKind.BUFFER, name, node) for name, node in zip(assigned, found.results[count:], strict=True)]
    changed = [item for kind in _ORDER for item in changed if item[0] is kind]
    _reorder(found.graph, [placeholders[node] for _, _, node in every])
    _rename(found.graph, {placeholders[node]: name for kind, name, node in every if kind is InputKind.USER_INPUT})
    results = [*found.results[:count]]
    output = found.graph.create_node("output", "output", ((*(node for _, _, node in changed), *results),), {})
    output.meta["val"] = None
    _detach(found.graph)
    if unknown.values:  # who reads it shows when traces are merged
        remove_unread(found.graph, unknown.tells)
    else:
        remove_unread(found.graph)
    return Trace(
        found.graph,
        tracer.root,
        [(kind, name, placeholders[node]) for kind, name, node in every],
        [(name, tensor.detach()) for name, tensor, _ in tracer.found],
        changed,
        results,
        out_spec,
        unknown,
    )


_ORDER = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR, InputKind.USER_INPUT)


def _reorder(graph: Graph, nodes: list[Node]) -> None:
    for node in reversed(nodes):
        first = next(iter(graph.nodes))
        if first is not node:
            first.prepend(node)


def _rename(graph: Graph, names: dict[Node, str]) -> None:
    """Inputs are called as the program calls them, though it be as a builtin function is."""
    taken = {node.name for node in graph.nodes}
    for node, name in names.items():
        if name not in taken and name.isidentifier() and not keyword.iskeyword(name):
            node.name = node.target = name


def remove_unread(graph: Graph, kept: Callable[[Any], bool] = lambda target: False) -> None:
    """Steps that nothing reads go, but for those that write or draw random numbers, and those of targets ``kept``."""
    for node in reversed([*graph.nodes]):
        if node.users or node.op not in ("call_function", "get_attr") or node.target is ASSERT or kept(node.target):
            continue
        if not written(node) and not _random(node):
            graph.erase_node(node)


def _random(node: Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    return packet is not None and packet.__name__ in random_names()
