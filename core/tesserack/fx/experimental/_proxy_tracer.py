"""The tracer of ``make_fx``: the graph that is being made, and the mode under which operators become its nodes."""

from __future__ import annotations

import contextlib
import linecache
import operator
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tesserack import Tensor, is_grad_enabled, strided
from tesserack._tensor.subclass import has_no_memory
from tesserack.aten.fake.fake_tensor import FakeTensor, FakeTensorMode
from tesserack.aten.functions import FUNCTIONS
from tesserack.aten.modes import TorchDispatchMode, _only, disabled_modes, stack, within_composite
from tesserack.aten.operators import namespace
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.interpreter import Interpreter
from tesserack.fx.node import Node, map_aggregate
from tesserack.nn.modules.module import Module

__all__ = [
    "CARRIED",
    "PACKAGE",
    "ProxyTorchDispatchMode",
    "PythonKeyTracer",
    "RetracingInterpreter",
    "disable_proxy_modes_tracing",
    "get_proxy_mode",
    "maybe_disable_fake_tensor_mode",
    "mode_of",
    "reenter_make_fx",
    "shown_frames",
    "user_frames",
]

PACKAGE = str(Path(__file__).resolve().parents[2])


_LAYERS = str(Path(PACKAGE, "nn", "modules"))


# What a node says of the program, which nodes made of it say too.
CARRIED = ("stack_trace", "nn_module_stack", "torch_fn")


def user_frames(layers: bool = False) -> list[tuple[str, int, str]]:
    """File, line and function of the program's frames, the outermost first: those outside of this package, or those of
    its layers."""
    frame: Any = sys._getframe(1)
    found: list[tuple[str, int, str]] = []
    while frame is not None:
        name = frame.f_code.co_filename
        theirs = not name.startswith((PACKAGE, "<frozen", "<tesserack"))
        if (name.startswith(_LAYERS) and frame.f_code.co_name == "forward") if layers else theirs:
            found.append((name, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found[::-1]


def shown_frames(frames: list[tuple[str, int, str]]) -> str:
    """Frames as a traceback shows them."""
    lines = []
    for file, line, function in frames:
        lines.append(f'File "{file}", line {line}, in {function}\n')
        text = linecache.getline(file, line).strip()
        lines.append(f"    {text}\n" if text else "")
    return "".join(lines)


def _memory(tensor: Tensor) -> Any:
    """Where a tensor's elements lie; None for one that has none."""
    if isinstance(tensor, FakeTensor) or tensor.is_meta or tensor.layout is not strided or has_no_memory(tensor):
        return None
    if not tensor.numel():
        return None
    at = tensor._storage_ptr(), tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
    return *at, tensor.dtype, tensor.is_conj(), tensor.is_neg()


class PythonKeyTracer:
    """The graph that is being made, its root module, and which node each tensor is.

    Tensors are held while the trace lasts, so that none takes the place of another. ``parent`` is the tracer of the
    graph around one that belongs to control flow: what is not known here is looked for there and becomes an operand.
    """

    records_gradients = True  # whether what is traced may record gradients

    def __init__(self, parent: PythonKeyTracer | None = None) -> None:
        self.root: Module = Module()
        self.graph = Graph()
        self.parent = parent
        self.lifted: list[Tensor] = []  # tensors of the parent's that became placeholders, in order
        self.frames_before: int = len(user_frames()) if parent is None else parent.frames_before
        self.module_stack: dict[str, tuple[str, str]] = {}  # of the outermost one: modules whose forward runs
        self.called: tuple[str, str] | None = None  # of the outermost one: the program's function that runs
        self._nodes: dict[int, tuple[Tensor, Node]] = {}
        self._by_memory: dict[Any, Node] = {}
        self.carried: dict[str, Any] | None = None  # notes of the node of another graph, which is traced again
        self._constants = 0
        self._last_placeholder: Node | None = None
        self._last_constant: Node | None = None

    def outermost(self) -> PythonKeyTracer:
        """The tracer of the whole graph."""
        return self if self.parent is None else self.parent.outermost()

    # --- tensors and nodes -------------------------------------------------------------------------------------------

    def track(self, tensor: Tensor, node: Node) -> None:
        """From now on the tensor is the value of the node."""
        self._nodes[id(tensor)] = (tensor, node)
        memory = _memory(tensor)
        if memory is not None:
            self._by_memory[memory] = node

    def knows(self, tensor: Tensor) -> bool:
        """Whether the tensor is the value of a node of this graph."""
        return id(tensor) in self._nodes

    def node_of(self, tensor: Tensor) -> Node:
        """The node of a tensor; one of the graph around this becomes an operand, and any other a constant."""
        found = self._nodes.get(id(tensor))
        if found is not None:
            return found[1]
        memory = _memory(tensor)
        if memory is not None and memory in self._by_memory:  # as autograd gives back what it saved
            return self._by_memory[memory]
        if self.parent is None:
            return self.constant(tensor)
        self.parent.node_of(tensor)
        node = self.placeholder(f"lifted_{len(self.lifted)}", tensor)
        self.lifted.append(tensor)
        return node

    def placeholder(self, name: str, value: Any) -> Node:
        """A further placeholder, after those that there are."""
        last = self._last_placeholder
        with self.graph.inserting_after(last) if last is not None else self.graph.inserting_before():
            node = self.graph.create_node("placeholder", name, name=name)
        self._last_placeholder = node
        node.meta["val"] = value
        if isinstance(value, Tensor):
            self.track(value, node)
        return node

    def constant(self, tensor: Tensor) -> Node:
        """A node that reads a tensor which the program holds: an attribute of the root."""
        name = f"_tensor_constant{self._constants}"
        self._constants += 1
        setattr(self.root, name, tensor)
        last = self._last_constant or self._last_placeholder
        with self.graph.inserting_after(last) if last is not None else self.graph.inserting_before():
            node = self.graph.create_node("get_attr", name)
        self._last_constant = node
        node.meta["val"] = tensor
        self.track(tensor, node)
        return node

    def attribute(self, prefix: str, value: Any) -> Node:
        """A node that reads a graph module, which becomes an attribute of the root under a new name."""
        number = 0
        while hasattr(self.root, f"{prefix}_{number}"):
            number += 1
        setattr(self.root, f"{prefix}_{number}", value)
        return self.graph.create_node("get_attr", f"{prefix}_{number}")

    def arguments(self, tree: Any) -> Any:
        """Arguments with nodes in the place of tensors."""
        return map_aggregate(tree, lambda x: self.node_of(x) if isinstance(x, Tensor) else x)

    # --- steps -------------------------------------------------------------------------------------------------------

    def step(self, func: Any, args: Any, kwargs: Any, name: str, result: Any) -> Node:
        """A node for a call that gave ``result``, whose tensors are its values from now on."""
        node = self.graph.create_node("call_function", func, args, kwargs, name=name)
        self._note(node, result)
        self._track_results(node, result)
        return node

    def _note(self, node: Node, value: Any) -> None:
        node.meta["val"] = value
        if not is_grad_enabled():
            node.meta["grad_enabled"] = False
        if self.carried is not None:
            node.meta.update((k, self.carried[k]) for k in CARRIED if k in self.carried)
            return
        frames = user_frames()[self.frames_before :] or user_frames(layers=True)
        node.meta["stack_trace"] = shown_frames(frames)
        if self.outermost().module_stack:
            node.meta["nn_module_stack"] = dict(self.outermost().module_stack)
        if self.outermost().called is not None:
            node.meta["torch_fn"] = self.outermost().called

    def _track_results(self, node: Node, result: Any) -> None:
        if isinstance(result, Tensor):
            self.track(result, node)
        elif isinstance(result, (tuple, list)):
            for place, item in enumerate(result):
                if isinstance(item, Tensor):
                    part = self.graph.create_node("call_function", operator.getitem, (node, place), {}, name="getitem")
                    self._note(part, item)
                    self.track(item, part)

    def finish(self, results: Any, annotation: Any = None) -> None:
        """The output node, with the type that the program says it returns."""
        node = self.graph.create_node("output", "output", (self.arguments(results),), {}, type_expr=annotation)
        node.meta["val"] = results


_ATEN: Any = namespace("aten")
# What they give is a number of Python's, which the graph would have for ever.
_ANSWERS = frozenset({_ATEN._local_scalar_dense.default, _ATEN.equal.default, _ATEN.allclose.default})


def _follows_arguments(args: Any) -> bool:
    """Whether a placeholder is among what the nodes are made of."""
    seen: set[Node] = set()
    left = [arg for arg in args if isinstance(arg, Node)]
    while left:
        node = left.pop()
        if node.op == "placeholder":
            return True
        seen.add(node)
        left += [other for other in node.all_input_nodes if other not in seen]
    return False


class ProxyTorchDispatchMode(TorchDispatchMode):
    """As a context: operators become nodes of the tracer's graph, and go on to the modes around this one."""

    sees_parts_of_recorded = True
    bears_new_geometry = False

    def __init__(
        self,
        tracer: PythonKeyTracer,
        tracing_mode: str = "real",
        pre_dispatch: bool = False,
        _allow_fake_constant: bool = False,
        _error_on_data_dependent_ops: bool = True,
        decomposition_table: dict[Any, Any] | None = None,
    ) -> None:
        super().__init__()
        self.tracer, self.tracing_mode, self.pre_dispatch = tracer, tracing_mode, pre_dispatch
        self.enable_tracing = True
        self.decomposition_table = decomposition_table or {}
        self._refuses_values = _error_on_data_dependent_ops and tracing_mode == "real"

    @classmethod
    def is_infra_mode(cls) -> bool:
        """True: it is part of the framework."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.enable_tracing:
            return func(*args, **kwargs)
        if func is _ATEN.lift_fresh.default:  # what the program does to it must not reach the constant
            func = _ATEN.lift_fresh_copy.default
        decomposed = self.decomposition_table.get(func, self.decomposition_table.get(func.overloadpacket))
        if decomposed is not None:
            with _only([*stack(), self]):
                result = decomposed(*args, **kwargs)
            if result is not NotImplemented:
                return result
        node_args, node_kwargs = self.tracer.arguments((tuple(args), dict(kwargs)))
        if self._refuses_values and func in _ANSWERS and not within_composite() and _follows_arguments(node_args):
            raise RuntimeError(
                f"It appears that you're trying to get value out of a tracing tensor with {func} - erroring out! It's "
                "likely that this is caused by data-dependent control flow or similar. The graph would have the number "
                "of this run for ever; with _error_on_data_dependent_ops=False it is written down so"
            )
        result = func(*args, **kwargs)
        self.tracer.step(func, node_args, node_kwargs, func.overloadpacket.__name__, result)
        return result


def get_proxy_mode() -> ProxyTorchDispatchMode | None:
    """The innermost mode of this thread that makes a graph."""
    return next((mode for mode in reversed(stack()) if isinstance(mode, ProxyTorchDispatchMode)), None)


@contextlib.contextmanager
def disable_proxy_modes_tracing(enable_current: bool = False) -> Iterator[None]:
    """Within it nothing becomes a node."""
    with _only([mode for mode in stack() if not isinstance(mode, ProxyTorchDispatchMode)]):
        yield


maybe_disable_fake_tensor_mode = disabled_modes


def mode_of(leaves: list[Any]) -> FakeTensorMode:
    """The mode of the first fake tensor among the leaves; a new one if there is none."""
    return next((x.fake_mode for x in leaves if isinstance(x, FakeTensor)), FakeTensorMode())


class RetracingInterpreter(Interpreter):
    """Runs a graph that is traced again: what becomes of a node knows the lines and modules that the node knows."""

    def run_node(self, n: Node) -> Any:
        """The node's value."""
        mode = get_proxy_mode()
        if mode is not None:
            mode.tracer.carried = n.meta
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The call's value; numbers and sizes as methods read them, so that what it is compared with is seen."""
        if args and isinstance(args[0], FakeTensor):
            if target is _ATEN._local_scalar_dense.default:
                return args[0].item()
            if target is _ATEN.sym_size.int:
                return args[0].shape[args[1]]
        if target is _ATEN._assert_scalar.default:  # which writes itself down, of what it compares
            return FUNCTIONS["_assert_scalar"](*args, **kwargs)
        return super().call_function(target, args, kwargs)


def reenter_make_fx(
    f: Callable[..., Any], mode: ProxyTorchDispatchMode, args: Any, name: str
) -> tuple[GraphModule, list[Tensor], list[Any]]:
    """The graph of a function that control flow within ``mode``'s graph is given, on fake tensors, and its results.

    Tensors of the graph around it that the function closes over come back as a list: each is a placeholder, after
    those of the arguments.
    """
    inner = PythonKeyTracer(mode.tracer)
    around = next((m for m in reversed(stack()) if isinstance(m, FakeTensorMode)), None)
    fake_mode = around or mode_of([*args])
    with contextlib.ExitStack() as entered:
        if around is None:
            entered.enter_context(fake_mode)
        given = [_fresh(fake_mode, x) if isinstance(x, Tensor) else x for x in args]
        for place, value in enumerate(given):
            inner.placeholder(f"arg{place}_1", value)
        entered.enter_context(ProxyTorchDispatchMode(inner, "fake", decomposition_table=mode.decomposition_table))
        if mode.tracer.carried is not None and isinstance(f, GraphModule):
            results = RetracingInterpreter(f).run(*given)
        else:
            results = f(*given)
    inner.finish(tuple(results) if isinstance(results, (list, tuple)) else results)
    leaves = [*results] if isinstance(results, (list, tuple)) else [results]
    return GraphModule(inner.root, inner.graph, name), inner.lifted, leaves


def _fresh(fake_mode: FakeTensorMode, x: Tensor) -> FakeTensor:
    """A fake tensor like ``x`` that is no other node's value."""
    with disabled_modes():
        outline = fake_mode.from_tensor(x)._outline
        copy = outline.new_empty_strided(tuple(outline.shape), outline.stride())
        return FakeTensor(fake_mode, copy, x.device)
