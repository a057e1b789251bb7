"""Tracing with tensors on the meta device beside the proxies: sizes are numbers, and can decide branches."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.fx._aggregate import map_aggregate
from tesserack.fx._keeping import keeping_call
from tesserack.fx._patcher import Patcher, reverted
from tesserack.fx._symbolic_trace import Tracer
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node
from tesserack.fx.proxy import Proxy
from tesserack.nn.modules.module import Module

__all__ = ["MetaAttribute", "MetaDeviceAttribute", "MetaProxy", "MetaTracer", "manual_meta_overrides",
           "proxys_to_metas", "symbolic_trace"]  # fmt: skip

# Functions and classes of layers whose results are told by others, in place of running them on the meta device.
manual_meta_overrides: dict[Any, Callable[..., Any]] = {}


class MetaProxy(Proxy):
    """A proxy that knows sizes and dtype."""

    _tensor_meta: Any

    def install_tensor_meta(self, tensor_meta: Any) -> None:
        """Note a tensor on the meta device, or another value."""
        self._tensor_meta = tensor_meta

    def _known(self) -> Any:
        found = self.__dict__.get("_tensor_meta")
        return found if isinstance(found, Tensor) else None

    def size(self, dim: int | None = None) -> Any:
        """The sizes, or one of them: numbers, where they are known."""
        found = self._known()
        if found is not None:
            return found.size() if dim is None else found.size(dim)
        return self.tracer.create_proxy("call_method", "size", (self,) if dim is None else (self, dim), {})

    def dim(self) -> Any:
        """How many dims there are."""
        found = self._known()
        return found.dim() if found is not None else self.tracer.create_proxy("call_method", "dim", (self,), {})

    @property
    def shape(self) -> Any:
        """The sizes."""
        return self._or_read("shape")

    @property
    def dtype(self) -> Any:
        """The dtype."""
        return self._or_read("dtype")

    @property
    def device(self) -> MetaDeviceAttribute:
        """The device, which is read when the program runs."""
        return MetaDeviceAttribute(self, "device")

    def _or_read(self, name: str) -> Any:
        found = self._known()
        if found is not None:
            return getattr(found, name)
        return self.tracer.create_proxy("call_function", getattr, (self, name), {})

    def __getattr__(self, k: str) -> Any:
        if k == "_tensor_meta" or (k.startswith("__") and k.endswith("__")) or k in ("node", "tracer"):
            raise AttributeError(k)
        return MetaAttribute(self, k)


class MetaAttribute(MetaProxy):
    """An attribute of such a value: read when it is used as a value, called as a method when it is called."""

    def __init__(self, root: MetaProxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads the attribute, made when it is needed."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class MetaDeviceAttribute(MetaAttribute):
    """The device of a value."""


def proxys_to_metas(v: Any) -> Any:
    """What stands for a proxy on the meta device."""
    if isinstance(v, MetaDeviceAttribute):
        return "meta"
    if isinstance(v, Proxy):
        assert isinstance(v, MetaProxy), f"Expected MetaProxy but got {type(v)}"
        assert "_tensor_meta" in v.__dict__, "MetaProxy does not have an associated meta"
        return v._tensor_meta
    return v.to("meta") if isinstance(v, Tensor) else v


class MetaTracer(Tracer):
    """Traces with tensors on the meta device for arguments, by name: ``trace(root, meta_args)``.

    Layers without parameters that the program makes while it runs become submodules.
    """

    allow_insert_stateless_mods = True
    _TORCH_METHODS_TO_PATCH = ("arange", "zeros", "ones", "full_like", "eye")

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *rest: Any, **options: Any) -> Any:
        """A step, which runs on the meta device as well; a warning where that fails."""
        made: Any = super().create_proxy(kind, target, args, kwargs, *rest, **options)
        if kind == "placeholder":
            if target in self.meta_args:
                made.install_tensor_meta(self.meta_args[target])
            return made
        if kind == "output" or not isinstance(made, MetaProxy):
            return made
        try:
            made.install_tensor_meta(self._on_meta(kind, target, args, kwargs))
        except Exception as error:
            warnings.warn(f"Could not compute metadata for {kind} target {target}: {error}", stacklevel=2)
        return made

    def _on_meta(self, kind: str, target: Any, args: Any, kwargs: Any) -> Any:
        if kind == "get_attr":
            return _read(self.root, target).to("meta")
        metas, named = map_aggregate(args, proxys_to_metas), map_aggregate(kwargs, proxys_to_metas)
        if kind == "call_method":
            return getattr(metas[0], target)(*metas[1:], **named)
        if kind == "call_module":
            module = self.root.get_submodule(target)
            override = manual_meta_overrides.get(type(module))
            with reverted():
                return override(module, *metas, **named) if override else _moved(module)(*metas, **named)
        if getattr(target, "__name__", "") in self._TORCH_METHODS_TO_PATCH:
            named = {**named, "device": "meta"}
        return manual_meta_overrides.get(target, target)(*metas, **named)

    def path_of_module(self, mod: Module) -> str:
        """The name of a submodule, under which a layer without parameters is added if it is new."""
        try:
            return super().path_of_module(mod)
        except NameError:
            held = [*mod.parameters(), *mod.buffers()]
            if not self.allow_insert_stateless_mods or held:
                raise
            path = self.get_fresh_qualname(f"{type(mod).__name__.lower()}_")
            self.root.add_module(path, mod)
            return path

    def proxy(self, node: Node) -> MetaProxy:
        """A value that stands for a node's."""
        return MetaProxy(node, self)

    def trace(  # type: ignore[override]
        self, root: Module | Callable[..., Any], meta_args: dict[str, Tensor], concrete_args: Any = None
    ) -> Graph:
        """The graph of a module or function, given tensors on the meta device by the names of its arguments."""
        assert isinstance(meta_args, dict), f"Expected dict for meta_args, got {type(meta_args)}"
        self.meta_args = meta_args
        with Patcher() as patcher:
            for name in self._TORCH_METHODS_TO_PATCH:
                patcher.patch(vars(ts), name, keeping_call(getattr(ts, name)))
            graph = super().trace(root, concrete_args)
        graph._tracer_extras = {"meta_args": meta_args}
        return graph


def _read(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = object.__getattribute__(module, name)
    return module


def _moved(module: Module) -> Callable[..., Any]:
    """A layer's ``forward`` with its tensors on the meta device."""
    from tesserack.nn.utils.stateless import functional_call

    tensors = {name: x.detach().to("meta") for name, x in (*module.named_parameters(), *module.named_buffers())}
    return lambda *args, **kwargs: functional_call(module, tensors, args, kwargs)


def symbolic_trace(
    root: Module | Callable[..., Any], meta_args: dict[str, Tensor] | None = None, concrete_args: Any = None
) -> GraphModule:
    """A module or function as a graph, traced beside tensors on the meta device."""
    tracer = MetaTracer()
    graph = tracer.trace(root, meta_args or {}, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "GraphModule")
    return GraphModule(tracer.root, graph, name)
