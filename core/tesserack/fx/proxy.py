"""Proxies: values that write down what is done with them."""

from __future__ import annotations

import dis
import inspect
import operator
import sys
from collections.abc import Iterator
from typing import Any

from tesserack._native import Operator
from tesserack.fx.node import Node, map_aggregate

__all__ = ["Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "TraceError", "TracerBase"]


class TraceError(ValueError):
    """A program did what cannot be written down without running it."""


def _is_mutable(target: Any, kwargs: Any) -> bool:
    """Whether an operator of ours is called in a form that writes."""
    if not isinstance(target, Operator):
        return False
    name = str(getattr(target, "__name__", ""))
    return kwargs.get("out") is not None or (name.endswith("_") and not name.endswith("__"))


class TracerBase:
    """Makes nodes and proxies; :class:`tesserack.fx.Tracer` decides what becomes one.

    Where ``check_mutable_operations``, a call of an operator that writes to what it is given is refused.
    """

    graph: Any
    check_mutable_operations = False

    def create_node(
        self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None = None, type_expr: Any = None
    ) -> Node:
        """A new node of the graph. ``RuntimeError`` for a mutable operation, if these are checked for."""
        if self.check_mutable_operations and kind == "call_function" and _is_mutable(target, kwargs):
            raise RuntimeError(
                f"Tried to trace mutable operation {getattr(target, '__name__', target)}. FX only supports functional "
                "code, so operations that mutate operands in-place (e.g. via `out` arguments) are not supported"
            )
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)  # type: ignore[no-any-return]

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
        **options: Any,
    ) -> Proxy:
        """A node of these arguments, in which proxies may stand, and a proxy for it."""
        return self.proxy(
            self.create_node(kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr)
        )

    def create_arg(self, a: Any) -> Any:
        """An argument as nodes have them: proxies become their nodes."""
        return map_aggregate(a, lambda value: value.node if isinstance(value, Proxy) else value)

    def to_bool(self, obj: Proxy) -> bool:
        """The truth of a value that is not known."""
        raise TraceError(
            "symbolically traced variables cannot be used as inputs to control flow: fx: a branch or loop depends on "
            "the value of a traced tensor; keep it out of the traced part"
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """The items of a value that is not known: of a known number where it is unpacked."""
        frame = sys._getframe(2)
        code = frame.f_code
        for instruction in dis.get_instructions(code):
            if instruction.offset == frame.f_lasti and instruction.opname == "UNPACK_SEQUENCE":
                return (operator.getitem(obj, k) for k in range(instruction.argval))
        raise TraceError("fx: a traced value is iterated over, and how many items it has is not known")

    def keys(self, obj: Proxy) -> Any:
        """The keys of a value that is not known, for ``**obj``."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Adds nodes to a graph that is there."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph


class Proxy:
    """Stands for the value of ``node``; what is done with it becomes nodes."""

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.node = node
        self.tracer = tracer if tracer is not None else GraphAppendingTracer(node.graph)

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        if k.startswith("__") and k.endswith("__"):
            raise AttributeError(k)
        return Attribute(self, k)

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        raise TraceError("fx: the length of a traced value is not known; use .size(0) or shape[0]")

    def keys(self) -> Any:
        """The keys, for ``**proxy``."""
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found: list[Proxy] = []
        map_aggregate((args, kwargs), lambda value: found.append(value) if isinstance(value, Proxy) else None)
        tracer = found[0].tracer
        if type(func).__name__ == "OperatorMethod":
            return tracer.create_proxy("call_method", func.__name__, args, kwargs)
        return tracer.create_proxy("call_function", func, *as_written(func, args, kwargs))


# Of nn.functional, but without a Python function around them in PyTorch: their arguments are noted as they were given.
_BARE = frozenset(
    (
        *("bilinear", "channel_shuffle", "cosine_similarity", "gelu", "hardshrink", "linear", "logsigmoid", "one_hot"),
        *("pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "prelu", "scaled_dot_product_attention"),
        *("softplus", "softshrink"),
    )
)


def as_written(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments as graphs of PyTorch's have them: what has a default in ``nn.functional`` by name, given or not."""
    known = inspect.isfunction(func) and func.__module__.endswith("nn.functional") and func.__name__ not in _BARE
    if not known or func.__name__.startswith(("conv", "avg_pool")):
        return args, kwargs
    bound = inspect.signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    found = inspect.signature(func).parameters
    plain = [name for name, parameter in found.items() if parameter.default is parameter.empty]
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in found.values()):
        return args, kwargs
    given = bound.arguments
    return tuple(given[name] for name in plain), {name: value for name, value in given.items() if name not in plain}


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


def _binary(name: str, reflected: bool) -> Any:
    function = getattr(operator, name)

    def method(self: Proxy, other: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", function, (other, self) if reflected else (self, other), {})

    return method


def _unary(name: str) -> Any:
    function = getattr(operator, name)
    return lambda self: self.tracer.create_proxy("call_function", function, (self,), {})


for _name in (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and_",
    "or_",
    "xor",
    "lshift",
    "rshift",
):
    _plain = _name.rstrip("_")
    setattr(Proxy, f"__{_plain}__", _binary(_name, False))
    setattr(Proxy, f"__r{_plain}__", _binary(_name, True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "getitem"):
    setattr(Proxy, f"__{_name}__", _binary(_name, False))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(Proxy, f"__{_name}__", _unary(_name))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
