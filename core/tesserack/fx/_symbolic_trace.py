"""Tracing: a module is run on proxies, and what it does is written down."""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import tesserack
from tesserack._native import Tensor
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import map_aggregate
from tesserack.fx.proxy import ParameterProxy, Proxy, TracerBase, as_written
from tesserack.nn.modules.container import Sequential
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = ["PH", "PHBase", "Tracer", "symbolic_trace", "wrap"]

# Functions that stay calls when they are given a proxy: (namespace, name).
_wrapped: list[tuple[dict[str, Any], str]] = []


class PHBase:
    """What a concrete argument may be to say: trace it."""


PH = PHBase()


def _has_proxy(args: Any, kwargs: Any) -> Proxy | None:
    found: list[Proxy] = []
    map_aggregate((args, kwargs), lambda value: found.append(value) if isinstance(value, Proxy) else None)
    return found[0] if found else None


def _keeping_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which given a proxy becomes a node and does not run."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        proxy = _has_proxy(args, kwargs)
        if proxy is None:
            return function(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", function, *as_written(function, args, kwargs))

    return call


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Have a function of the calling module stay one call in traces, by itself or by name; also a decorator.

    ``RuntimeError`` unless called at a module's top level.
    """
    frame = sys._getframe(1)
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap: it must be called at the top level of a module")
    _wrapped.append((frame.f_globals, name))
    return fn_or_name


class Tracer(TracerBase):
    """Writes a module down as a :class:`Graph`.

    ``is_leaf_module`` decides which submodules stay calls: those of ``nn``, but ``Sequential``. What is in
    ``autowrap_modules`` and ``autowrap_functions`` stays a call when it is given traced values. Where
    ``param_shapes_constant``, the shapes of parameters are numbers and not traced; a subclass that sets
    ``proxy_buffer_attributes`` has buffers that are read traced, and may override ``getattr``.
    """

    proxy_buffer_attributes = False

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        self._autowrap = {
            value for module in autowrap_modules for value in vars(module).values() if callable(value)
        } | set(autowrap_functions)
        self._modules = autowrap_modules
        self.param_shapes_constant = param_shapes_constant
        self.root: Module = Module()
        self.graph: Graph = Graph()
        self._paths: dict[int, str] = {}

    # --- what may be overridden --------------------------------------------------------------------------------------

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a submodule stays one call."""
        ours = type(m).__module__.startswith(("torch.nn", "tesserack.nn", "torch.ao.nn"))
        return ours and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The name of a submodule. ``NameError`` if the root does not contain it."""
        if id(mod) not in self._paths:
            raise NameError(f"fx: a {type(mod).__name__} is called that is no submodule of the traced module")
        return self._paths[id(mod)]

    def call_module(self, m: Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What a call of a submodule becomes."""
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    def create_arg(self, a: Any) -> Any:
        """An argument as nodes have them; parameters and buffers are read by their names."""
        return map_aggregate(a, self._argument)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Proxy):
            return value.node
        if isinstance(value, Tensor):
            return self.create_node("get_attr", self._name_of_tensor(value), (), {})
        return value

    def _name_of_tensor(self, tensor: Tensor) -> str:
        for name, owned in (*self.root.named_parameters(), *self.root.named_buffers()):
            if owned is tensor:
                return name
        for path, module in self.root.named_modules():
            for name, value in vars(module).items():
                if value is tensor:
                    return f"{path}.{name}" if path else name
        number = 0
        while hasattr(self.root, f"_tensor_constant{number}"):
            number += 1
        setattr(self.root, f"_tensor_constant{number}", tensor)
        return f"_tensor_constant{number}"

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What reading an attribute of a module gives: parameters, and buffers if asked for, are traced."""
        tables: list[tuple[type[Tensor], Any]] = [(Parameter, self.root.named_parameters)]
        if self.proxy_buffer_attributes:
            tables.append((Tensor, self.root.named_buffers))
        for kind, named in tables:
            if isinstance(attr_val, kind):
                name = next((name for name, owned in named() if owned is attr_val), None)
                if name is not None:
                    if name not in parameter_proxy_cache:
                        parameter_proxy_cache[name] = self._read(name, attr_val)
                    return parameter_proxy_cache[name]
        return attr_val

    def _read(self, name: str, value: Any) -> Proxy:
        proxy = self.create_proxy("get_attr", name, (), {})
        fixed = self.param_shapes_constant and isinstance(value, Parameter)
        return ParameterProxy(self, proxy.node, name, value) if fixed else proxy

    # --- tracing -----------------------------------------------------------------------------------------------------

    def trace(self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module or function; arguments in ``concrete_args`` have these values and are not traced."""
        if isinstance(root, Module):
            self.root, function = root, type(root).forward
            self._paths = {id(module): name for name, module in root.named_modules()}
            leading: list[Any] = [root]
        else:
            self.root, function, leading = Module(), root, []
        self.graph = Graph(tracer_cls=type(self))
        args, kwargs = self._arguments(function, leading, concrete_args or {})
        namespace = getattr(inspect.unwrap(function), "__globals__", {})
        with self._patched(namespace):
            result = function(*args, **kwargs)
        returned = getattr(function, "__annotations__", {}).get("return")
        self.create_node("output", "output", (self.create_arg(result),), {}, type_expr=returned)
        return self.graph

    def _arguments(
        self, function: Any, leading: list[Any], concrete: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        args, kwargs = [*leading], {}
        parameters = [*inspect.signature(function).parameters.values()][len(leading) :]
        for parameter in parameters:
            if parameter.name in concrete and not isinstance(concrete[parameter.name], PHBase):
                value: Any = concrete[parameter.name]
            else:
                value = self._placeholder(parameter)
            if parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[parameter.name] = value
            elif parameter.kind is parameter.VAR_POSITIONAL or parameter.kind is not parameter.VAR_KEYWORD:
                args.append(value)
        return args, kwargs

    def _placeholder(self, parameter: inspect.Parameter) -> Proxy:
        stars = "*" * ((parameter.kind is parameter.VAR_POSITIONAL) + 2 * (parameter.kind is parameter.VAR_KEYWORD))
        default = () if parameter.default is parameter.empty else (parameter.default,)
        kind = None if parameter.annotation is parameter.empty else parameter.annotation
        return self.create_proxy(
            "placeholder", f"{stars}{parameter.name}", default, {}, name=parameter.name, type_expr=kind
        )

    @contextmanager
    def _patched(self, namespace: dict[str, Any]) -> Iterator[None]:
        """Calls of modules and of wrapped functions, and reads of tensors, come here."""
        calls: Any = Module.__call__

        def call(module: Module, *args: Any, **kwargs: Any) -> Any:
            return self.call_module(module, lambda *a, **k: calls(module, *a, **k), args, kwargs)

        known: dict[str, Any] = {}

        def read(module: Module, name: str) -> Any:
            value = object.__getattribute__(module, name)
            return self.getattr(name, value, known) if isinstance(value, Tensor) else value

        undo: list[tuple[dict[str, Any], str, Any]] = []
        for space, name in [*_wrapped, *self._automatic(namespace)]:
            if name in space:
                undo.append((space, name, space[name]))
                space[name] = _keeping_call(space[name])
        Module.__call__ = call  # type: ignore[method-assign, assignment]
        Module.__getattribute__ = read  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            Module.__call__ = calls  # type: ignore[method-assign]
            del Module.__getattribute__
            for space, name, function in reversed(undo):
                space[name] = function

    def _automatic(self, namespace: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
        """The functions of ``nn.functional`` that are written in Python, and what the tracer was told to wrap."""
        functional = vars(tesserack.nn.functional)
        public = [n for n, value in functional.items() if inspect.isfunction(value) and not n.startswith("_")]
        yield from ((functional, name) for name in public)
        for facade in self._facades():
            yield from ((facade, name) for name in public if name in facade)
        for module in self._modules:
            yield from ((vars(module), n) for n, v in vars(module).items() if callable(v) and not n.startswith("_"))
        seen = {functional[name] for name in public} | self._autowrap
        for name, value in [*namespace.items()]:
            if callable(value) and not isinstance(value, type) and _hashable(value) and value in seen:
                yield namespace, name

    @staticmethod
    def _facades() -> Iterator[dict[str, Any]]:
        """``torch.nn.functional`` under the import hook keeps functions that were read."""
        facade = sys.modules.get("torch.nn.functional")
        if type(facade).__name__ == "Facade":
            own: Any = vars(ModuleType)["__dict__"]
            yield own.__get__(facade)


def _hashable(value: Any) -> bool:
    return getattr(type(value), "__hash__", None) is not None


def symbolic_trace(root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A module or function as a :class:`GraphModule` that does the same, with a graph that can be changed.

    ``TraceError`` where what is done depends on values.

    >>> import tesserack as ts
    >>> traced = symbolic_trace(lambda x: ts.relu(x) + 1)
    >>> traced(ts.tensor([-1.0, 1.0])).tolist()
    [1.0, 2.0]
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "GraphModule")
    return GraphModule(tracer.root, graph, name)
