"""Tracing: a module is run on proxies, and what it does is written down."""

from __future__ import annotations

import builtins
import copy
import functools
import inspect
import math
import os
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack.fx._aggregate import map_aggregate
from tesserack.fx._compatibility import compatibility
from tesserack.fx._in_python import functions_in_python, ids_of_functions_in_python
from tesserack.fx._keeping import keeping_call, keeping_method
from tesserack.fx._lazy_graph_module import _LazyGraphModule, _make_graph_module
from tesserack.fx._patcher import Patcher
from tesserack.fx._root_args import PH, PHBase, PHWithMeta, create_args, returned_type
from tesserack.fx._root_args import _assert_is_none as _assert_is_none
from tesserack.fx._scope import Scope, ScopeContextManager
from tesserack.fx._wrapped import _wrapped_fns_to_patch, wrap
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule, trace_with
from tesserack.fx.node import Node
from tesserack.fx.proxy import ParameterProxy, Proxy, TracerBase
from tesserack.nn.modules.container import Sequential
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter
from tesserack.utils._pytree import TreeSpec

__all__ = ["PH", "PHBase", "PHWithMeta", "ProxyableClassMeta", "Tracer", "is_fx_tracing", "symbolic_trace", "wrap"]

_wrapped_methods_to_patch: list[tuple[type, str]] = []
if os.environ.get("FX_PATCH_GETITEM") == "1":
    _wrapped_methods_to_patch.append((Tensor, "__getitem__"))
_proxyable_classes: dict[type, None] = {}
_state = {"tracing": False}


def is_fx_tracing() -> bool:
    """Whether a program is being traced."""
    return _state["tracing"]


is_fx_symbolic_tracing = is_fx_tracing


class ProxyableClassMeta(type):
    """For classes whose making, of traced values, is to be a step of the graph."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        _proxyable_classes.setdefault(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        instance: Any = cls.__new__(cls)  # type: ignore[call-overload]
        if not is_fx_tracing():
            instance.__init__(*args, **kwargs)
            return instance
        found: list[Proxy] = []
        map_aggregate((args, kwargs), lambda value: found.append(value) if isinstance(value, Proxy) else None)
        if found:
            return found[0].tracer.create_proxy("call_function", cls, args, kwargs)
        instance.__init__(*args, **kwargs)
        return instance


@compatibility(is_backward_compatible=True)
class Tracer(TracerBase):
    """Writes a module down as a :class:`Graph`.

    ``is_leaf_module`` decides which submodules stay calls: those of ``nn``, but ``Sequential``. What is in
    ``autowrap_modules`` and ``autowrap_functions`` stays a call when it is given traced values. Where
    ``param_shapes_constant``, the shapes of parameters are numbers and not traced; a subclass that sets
    ``proxy_buffer_attributes`` has buffers that are read traced, and may override ``getattr``.
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        of_modules = (vars(module).items() for module in autowrap_modules)
        self._autowrap_function_ids = {
            id(value) for items in of_modules for name, value in items if not name.startswith("_") and callable(value)
        } | {id(function) for function in autowrap_functions}
        self._autowrap_search = [*autowrap_modules]
        self.param_shapes_constant = param_shapes_constant
        self.root: Module = Module()
        self.graph: Graph = Graph()
        self.root_module_name = ""
        self.submodule_paths: dict[Module, str] | None = None
        self.scope = Scope("", None)
        self.module_stack: OrderedDict[str, Any] = OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope: dict[str, Any] = {}
        self.tensor_attrs: dict[int, tuple[str, Any]] = {}

    # --- what may be overridden --------------------------------------------------------------------------------------

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a submodule stays one call."""
        ours = type(m).__module__.startswith(("torch.nn", "tesserack.nn", "torch.ao.nn"))
        return ours and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The name of a submodule. ``NameError`` if the root does not contain it."""
        if self.submodule_paths:
            path = self.submodule_paths.get(mod)
        else:
            path = next((name for name, module in self.root.named_modules() if module is mod), None)
        if path is None:
            raise NameError("module is not installed as a submodule")
        return path

    def call_module(self, m: Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What a call of a submodule becomes."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))) as scope:
            calls = self.num_calls.get(path, 0)
            key = f"{path}@{calls}" if calls else path
            self.num_calls[path] = calls + 1
            self.module_stack[key] = (path, scope.module_type)
            try:
                if self.is_leaf_module(m, path):
                    return self.create_proxy("call_module", path, args, kwargs)
                return forward(*args, **kwargs)
            finally:
                self.module_stack.pop(key, None)

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name that the root has no attribute of, with a number."""
        number = 0
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    def create_arg(self, a: Any) -> Any:
        """An argument as nodes have them; parameters, buffers and modules are read by their names. ``NameError`` for a
        parameter of another module, ``NotImplementedError`` for what can be no argument.
        """
        if isinstance(a, (Tensor, Module)):
            return self._owned(a)
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return self.create_node("call_function", type(a), tuple(self.create_arg(item) for item in a), {})
        if isinstance(a, TreeSpec):
            return self._constant(a, "_tree_spec_constant")
        if type(a) in _proxyable_classes:
            return self._constant(a, f"_{type(a).__name__}_constant_")
        return super().create_arg(a)

    def _owned(self, a: Tensor | Module) -> Node:
        if isinstance(a, Module):
            named: Any = self.root.named_modules()
        else:
            named = self.root.named_parameters() if isinstance(a, Parameter) else self.root.named_buffers()
        name = next((name for name, owned in named if owned is a), None)
        if name is not None:
            return self.create_node("get_attr", name, (), {})
        if isinstance(a, Parameter):
            raise NameError("parameter is not a member of this module")
        if isinstance(a, Module):
            raise NotImplementedError(f"argument of type: {type(a)}")
        return self._constant(a, "_tensor_constant")

    def _constant(self, value: Any, prefix: str) -> Node:
        if id(value) not in self.tensor_attrs:
            name = self.get_fresh_qualname(prefix)
            setattr(self.root, name, value)
            self.tensor_attrs[id(value)] = (name, value)
        return self.create_node("get_attr", self.tensor_attrs[id(value)][0], (), {})

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What reading an attribute of a module gives: parameters, and buffers if asked for, are traced."""
        if isinstance(attr_val, Parameter):
            return self._traced(attr_val, self.root.named_parameters(), parameter_proxy_cache)
        if self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            return self._traced(attr_val, self.root.named_buffers(), parameter_proxy_cache)
        return attr_val

    def _traced(self, value: Any, named: Any, cache: dict[str, Any]) -> Any:
        name = next((name for name, owned in named if owned is value), None)
        if name is None:
            return value
        if name not in cache:
            options: dict[str, Any] = {}
            if self.param_shapes_constant and "proxy_factory_fn" in inspect.signature(self.create_proxy).parameters:
                options["proxy_factory_fn"] = lambda node: ParameterProxy(self, node, name, value)
            cache[name] = self.create_proxy("get_attr", name, (), {}, **options)
        return cache[name]

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: dict[str, Any] | tuple[Any, ...] | None = None
    ) -> tuple[Any, list[Any]]:
        """A placeholder for each parameter of the root; returns what is to be called, and with what."""
        return create_args(self, root_fn, is_module, concrete_args)

    # --- tracing -----------------------------------------------------------------------------------------------------

    def trace(self, root: Module | Callable[..., Any], concrete_args: Any = None) -> Graph:
        """The graph of a module or function; arguments in ``concrete_args`` have these values and are not traced."""
        _LazyGraphModule.force_recompile(root)
        before, _state["tracing"] = _state["tracing"], True
        try:
            function = self._begin(root)
            namespace = getattr(function, "__globals__", {})
            called, args = self.create_args_for_root(function, isinstance(root, Module), concrete_args)
            with Patcher() as patcher:
                self._patch(patcher, namespace)
                result = self.create_arg(called(*args))
                kind = returned_type(called)
                self.create_node("output", "output", (result,), {}, type_expr=kind)
            self.submodule_paths = None
        finally:
            _state["tracing"] = before
        return self.graph

    def _begin(self, root: Any) -> Any:
        """Notes whose submodules and tensors are whose; returns the function that is traced."""
        if isinstance(root, Module):
            assert hasattr(type(root), self.traced_func_name), (
                f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}"
            )
            self.root, function = root, getattr(type(root), self.traced_func_name)
            self.root_module_name = type(root).__name__
            self.submodule_paths = {module: name for name, module in root.named_modules()}
        else:
            self.root, function = Module(), root
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs = {}
        for path, module in self.root.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, (Tensor, TreeSpec)):
                    self.tensor_attrs.setdefault(id(value), (f"{path}.{name}" if path else name, value))
        return _plain_function(function)

    def _patch(self, patcher: Patcher, namespace: dict[str, Any]) -> None:
        """Calls of modules and of wrapped functions, and reads of tensors, come here."""
        calls: Any = Module.__call__
        known: dict[str, Any] = {}

        @functools.wraps(calls)
        def call(module: Module, *args: Any, **kwargs: Any) -> Any:
            self._autowrap(patcher, getattr(getattr(module, "forward", module), "__globals__", {}))
            return self.call_module(module, lambda *a, **k: calls(module, *a, **k), args, kwargs)

        def read(module: Module, name: str) -> Any:
            value = object.__getattribute__(module, name)
            return self.getattr(name, value, known) if isinstance(value, Tensor) else value

        patcher.patch_method(Module, "__getattribute__", read)
        patcher.patch_method(Module, "__call__", call)
        for (_, name), space in [*_wrapped_fns_to_patch.items()]:
            function = space[name] if name in space or not hasattr(builtins, name) else getattr(builtins, name)
            patcher.patch(space, name, keeping_call(function, mark=True))
        for cls, name in _wrapped_methods_to_patch:
            patcher.patch_method(cls, name, keeping_method(cls, name))
        self._autowrap(patcher, namespace)
        for module in self._autowrap_search:
            self._autowrap(patcher, vars(module))
        for space, name in functions_in_python():
            patcher.patch(space, name, keeping_call(space[name]))

    def _autowrap(self, patcher: Patcher, namespace: dict[str, Any]) -> None:
        """Functions of a module that are to stay calls, wherever it has them from."""
        if not patcher.visit_once(namespace):
            return
        ids = self._autowrap_function_ids | ids_of_functions_in_python()
        for name, value in [*namespace.items()]:
            if not name.startswith("_") and callable(value) and id(value) in ids:
                marked = id(value) in self._autowrap_function_ids
                patcher.patch(namespace, name, keeping_call(value, mark=marked))

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        made = type(self).__new__(type(self))
        for name, value in self.__dict__.items():
            made.__dict__[name] = copy.copy(value) if name == "_autowrap_search" else copy.deepcopy(value, memo)
        return made


trace_with(Tracer)


def _plain_function(function: Any) -> Any:
    """A function with code of its own: of an object that is called, or of a method with what it is bound to."""
    if isinstance(function, _native._CompiledFunction):
        return _plain_function(function.__wrapped__)
    if isinstance(function, FunctionType):
        return function
    if inspect.ismethod(function):
        return _bound(function.__func__, function.__self__)
    call = type(function).__call__
    if isinstance(call, FunctionType) and not isinstance(function, type):
        return _bound(call, function)
    raise AssertionError(f"trace: expected a module or a function written in Python, got {type(function).__name__}")


def _bound(function: Any, first: Any) -> Any:
    parameters = [*inspect.signature(function).parameters.values()][1:]
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise AssertionError("trace: expected a method without *args and **kwargs; trace a function that calls it")
    names = ", ".join(p.name for p in parameters)
    scope: dict[str, Any] = {"_call": function, "_first": first}
    exec(f"def {function.__name__}({names}):\n    return _call(_first, {names})", scope)
    made = scope[function.__name__]
    made.__defaults__ = tuple(p.default for p in parameters if p.default is not p.empty) or None
    return made


@compatibility(is_backward_compatible=True)
def symbolic_trace(root: Module | Callable[..., Any], concrete_args: Any = None) -> GraphModule:
    """A module or function as a :class:`GraphModule` that does the same, with a graph that can be changed.

    ``concrete_args`` are values of arguments that are not traced, nested ones with :data:`PH` where they are; given
    others, the result raises ``AssertionError``. ``TraceError`` where what is done depends on values.

    >>> import tesserack as ts
    >>> traced = symbolic_trace(lambda x: ts.relu(x) + 1)
    >>> traced(ts.tensor([-1.0, 1.0])).tolist()
    [1.0, 2.0]
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", type(root).__name__)
    return _make_graph_module(tracer.root, graph, name)
