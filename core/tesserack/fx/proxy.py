"""Proxies: values that write down what is done with them."""

from __future__ import annotations

import copy
import dataclasses
import dis
import enum
import operator
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from tesserack._native import Operator
from tesserack._tensor.overrides import is_tensor_method_or_property
from tesserack.aten.operators import OpOverload, OpOverloadPacket
from tesserack.fx import traceback as fx_traceback
from tesserack.fx._aggregate import map_aggregate
from tesserack.fx._compatibility import compatibility
from tesserack.fx._scope import Scope, ScopeContextManager
from tesserack.fx._writer import MAGIC, REFLECTED
from tesserack.fx._written import as_written
from tesserack.fx.node import Node, base_types, map_arg
from tesserack.fx.operator_schemas import check_for_mutable_operation

__all__ = ["Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "Scope", "ScopeContextManager", "TraceError",
           "TracerBase", "assert_fn"]  # fmt: skip


@compatibility(is_backward_compatible=True)
class TraceError(ValueError):
    """A program did what cannot be written down without running it."""


def assert_fn(x: Any) -> None:
    """``assert``, as a graph has it where assertions are traced."""
    assert x


_KEPT = (*base_types, type(None), type(...), enum.Enum, Operator, OpOverload, OpOverloadPacket)


@compatibility(is_backward_compatible=True)
class TracerBase:
    """Makes nodes and proxies; :class:`tesserack.fx.Tracer` decides what becomes one.

    Where ``check_mutable_operations``, a call of an operator that writes to what it is given is refused; where
    ``record_stack_traces``, nodes note the lines they come from; where ``trace_asserts``, ``assert`` of a traced value
    becomes a node.
    """

    graph: Any
    record_stack_traces: bool = False
    check_mutable_operations: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False
    traced_func_name: str = "forward"
    scope: Scope
    module_stack: dict[str, Any]
    node_name_to_scope: dict[str, Any]

    def create_node(
        self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None = None, type_expr: Any = None
    ) -> Node:
        """A new node of the graph. ``RuntimeError`` for a mutable operation, if these are checked for."""
        if kind == "call_function" and self.check_mutable_operations:
            check_for_mutable_operation(target, args, kwargs)
        node: Node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        scope = getattr(self, "scope", None)
        if scope is not None:
            self.node_name_to_scope[node.name] = (scope.module_path, scope.module_type)
        if fx_traceback.has_preserved_node_meta():
            node.meta.update(fx_traceback.current_meta_to_copy())
        elif getattr(self, "module_stack", None):
            node.meta["nn_module_stack"] = copy.copy(self.module_stack)
        if self.record_stack_traces and not node.stack_trace:
            node.stack_trace = fx_traceback.lines_of_caller()
        return node

    def proxy(self, node: Node) -> Proxy:
        """A value that stands for a node's."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: Any,
        kwargs: Any,
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """A node of these arguments, in which proxies may stand, and a proxy for it, made by ``proxy_factory_fn``."""
        args_, kwargs_ = self.create_arg(args), self.create_arg(kwargs)
        assert isinstance(args_, tuple) and isinstance(kwargs_, dict), "expected a tuple of args and a dict of kwargs"
        node = self.create_node(kind, target, args_, kwargs_, name, type_expr)
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    def _find_user_frame(self) -> FrameType | None:
        """The innermost frame that is none of tracing."""
        return fx_traceback.user_frame()

    def create_arg(self, a: Any) -> Any:
        """An argument as nodes have them: proxies become their nodes. ``NotImplementedError`` for what none can be."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, base_types):
            return a
        if isinstance(a, tuple):
            items = [self.create_arg(item) for item in a]
            return type(a)(*items) if hasattr(a, "_fields") else type(a)(items)
        if isinstance(a, list):
            return [self.create_arg(item) for item in a]
        if isinstance(a, dict):
            return {self._key(key): self.create_arg(value) for key, value in a.items()}
        if isinstance(a, (slice, range)):
            return type(a)(*(self.create_arg(part) for part in (a.start, a.stop, a.step)))
        if dataclasses.is_dataclass(a) and not isinstance(a, type):
            fields = {field.name: self.create_arg(getattr(a, field.name)) for field in dataclasses.fields(a)}
            return self.create_node("call_function", type(a), (), fields)
        if isinstance(a, _KEPT):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _key(self, key: Any) -> Any:
        if isinstance(key, str):
            return key
        key = self.create_arg(key)

        def refuse(node: Node) -> Any:
            raise RuntimeError(f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {key}")

        map_arg(key, refuse)
        return key

    def to_bool(self, obj: Proxy) -> bool:
        """The truth of a value that is not known."""
        raise TraceError(
            "symbolically traced variables cannot be used as inputs to control flow: a branch or loop depends on the "
            "value of a traced tensor; keep it out of the traced part"
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """The items of a value that is not known."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or "
            "**kwargs function argument; how many items it has is not known while it is traced"
        )

    def keys(self, obj: Proxy) -> Any:
        """The keys of a value that is not known, for ``**obj``."""
        return Attribute(obj, "keys")()


@compatibility(is_backward_compatible=True)
class GraphAppendingTracer(TracerBase):
    """Adds nodes to a graph that is there."""

    def __init__(self, graph: Any) -> None:
        super().__init__()
        self.graph = graph
        self.scope = Scope("", None)
        self.module_stack = {}
        self.node_name_to_scope = {}


def _instruction(frame: FrameType) -> tuple[list[dis.Instruction], int]:
    """The instructions of a frame, and the place of the one it is at."""
    found = [*dis.get_instructions(frame.f_code)]
    return found, next(k for k, instruction in enumerate(found) if instruction.offset == frame.f_lasti)


@compatibility(is_backward_compatible=True)
class Proxy:
    """Stands for the value of ``node``; what is done with it becomes nodes."""

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = tracer if tracer is not None else GraphAppendingTracer(node.graph)
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        if k in ("node", "tracer", "__fx_create_arg__") or (k.startswith("__") and k.endswith("__")):
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        made = type(self).__new__(type(self))
        made.__dict__.update({name: copy.copy(value) for name, value in self.__dict__.items()})
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        instructions, at = _instruction(sys._getframe(1))
        if instructions[at].opname == "UNPACK_SEQUENCE":
            return (operator.getitem(self, k) for k in range(instructions[at].argval))
        return self.tracer.iter(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _asserts(sys._getframe(1)):
            self.tracer.create_proxy("call_function", assert_fn, (self,), {})
            return True
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        """The keys, for ``**proxy``."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "torch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = args or (), kwargs or {}
        tracers: dict[int, TracerBase] = {}

        def find(value: Any) -> Any:
            if isinstance(value, cls):
                tracers[id(value.tracer)] = value.tracer

        map_aggregate((args, kwargs), find)
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {[*tracers.values()]} while trying to trace operations {func}"
            )
        tracer = next(iter(tracers.values()))
        if type(func).__name__ == "OperatorMethod" or is_tensor_method_or_property(func):
            return tracer.create_proxy("call_method", func.__name__, args, kwargs)
        name = tracer.graph._target_to_str(getattr(func, "__name__", str(func)))
        return tracer.create_proxy("call_function", func, *as_written(func, args, kwargs), name=name)

    def __hash__(self) -> int:
        return id(self)


def _asserts(frame: FrameType) -> bool:
    """Whether a frame decides an ``assert``."""
    instructions, at = _instruction(frame)
    jumps = instructions[at].opname in ("POP_JUMP_IF_TRUE", "POP_JUMP_FORWARD_IF_TRUE", "TO_BOOL")
    following = instructions[at + 1 : at + 3]
    return jumps and any(i.opname == "LOAD_ASSERTION_ERROR" or i.argval == "AssertionError" for i in following)


@compatibility(is_backward_compatible=False)
class MetaProxy(Proxy):
    """A proxy that notes as ``meta["val"]`` what a fake value computes."""

    def __init__(self, node: Node, tracer: TracerBase | None = None, fake_mode: Any = None) -> None:
        super().__init__(node, tracer)
        self.fake_mode = fake_mode

    def __repr__(self) -> str:
        return f"MetaProxy({self.node.name})"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = args or (), kwargs or {}
        first = next(arg for arg in args if isinstance(arg, MetaProxy))
        proxy = super().__torch_function__(func, types, args, kwargs)
        with first.fake_mode:
            values = map_aggregate(args, lambda a: a.node.meta["val"] if isinstance(a, Proxy) else a)
            proxy.node.meta["val"] = func(*values, **kwargs)
        return MetaProxy(proxy.node, proxy.tracer, first.fake_mode)


@compatibility(is_backward_compatible=True)
class Attribute(Proxy):
    """An attribute of a value: read when it is used as a value, called as a method when it is called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads the attribute, made when it is needed."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


@compatibility(is_backward_compatible=False)
class ParameterProxy(Proxy):
    """A parameter whose shape is known while it is traced."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.name, self.param = name, param

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        """The parameter's."""
        return self.param.shape

    def size(self, dim: int | None = None) -> Any:
        """The parameter's shape, or one size of it."""
        return self.param.size() if dim is None else self.param.size(dim)

    def dim(self) -> int:
        """How many dims the parameter has."""
        return int(self.param.dim())

    @property
    def ndim(self) -> int:
        """How many dims the parameter has."""
        return int(self.param.ndim)

    def numel(self) -> int:
        """How many elements the parameter has."""
        return int(self.param.numel())

    def nelement(self) -> int:
        """How many elements the parameter has."""
        return int(self.param.nelement())


def _operation(name: str, reflected: bool) -> Any:
    function = getattr(operator, name)

    def method(self: Proxy, *others: Any) -> Proxy:
        args = (*others, self) if reflected else (self, *others)
        return self.tracer.create_proxy("call_function", function, args, {})

    return method


for _name in MAGIC:
    if hasattr(operator, _name):
        setattr(Proxy, f"__{_name.strip('_')}__", _operation(_name, False))
for _name in REFLECTED:
    if hasattr(operator, _name) and _name != "getitem":
        setattr(Proxy, f"__r{_name.strip('_')}__", _operation(_name, True))
