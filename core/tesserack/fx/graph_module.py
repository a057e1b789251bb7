"""Modules that run a graph."""

from __future__ import annotations

import contextlib
import copy
import itertools
import linecache
import os
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from tesserack.fx._codegen import PythonCode, PyTreeCodeGen, _BoxedCodeGen
from tesserack.fx._compatibility import compatibility
from tesserack.fx._packaged import _CodeOnlyModule, put_together, taken_apart
from tesserack.fx._readable import print_readable
from tesserack.fx._submodules import Submodules, copy_attr, place
from tesserack.fx._to_folder import to_folder
from tesserack.fx._wrapped import _wrapped_fns_to_patch
from tesserack.fx.graph import Graph
from tesserack.nn.modules.module import Module

__all__ = ["GraphModule"]

_count = itertools.count()
_copy_attr, _assign_attr = copy_attr, place
_tracers: list[Any] = []  # by which modules from packages are traced again unless they name another
# What is the module's own and no part of it.
_OWN = ("_graph", "_code", "_lineno_map", "_prologue_start", "_in_spec", "_out_spec")


def trace_with(tracer: Any) -> None:
    """Say by which class modules are traced again."""
    _tracers[:] = [tracer]


def _forward_from_src(src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None) -> Any:
    """The function of a text, whose lines tracebacks show."""
    return _compiled(src, globals)[0]


def _compiled(src: str, globals: dict[str, Any]) -> tuple[Any, str]:
    file = f"<eval_with_key>.{next(_count)}"
    linecache.cache[file] = (len(src), None, src.splitlines(True), file)
    namespace = {**globals}
    exec(compile(src, file, "exec"), namespace)
    return namespace.pop("forward"), file


def _forget(file: str, namespace: int) -> None:
    """What was noted of a function that is gone: its lines, and which of its names stay calls when it is traced."""
    linecache.cache.pop(file, None)
    for key in [key for key in [*_wrapped_fns_to_patch] if key[0] == namespace]:
        del _wrapped_fns_to_patch[key]


@compatibility(is_backward_compatible=True)
class GraphModule(Submodules, Module):
    """A module whose ``forward`` is written from a graph. After changing ``graph``, call :meth:`recompile`.

    ``root`` is a module, whose parts that the graph names are taken over, or a dict of them by name.
    """

    _plain_class: type[GraphModule]
    _file: str | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        # Each has a class of its own, because forward is looked up on the class.
        plain = vars(cls).get("_plain_class", cls)
        named = {"_plain_class": plain, "__module__": plain.__module__}
        derived: type[GraphModule] = type(plain.__name__, (plain,), named)
        return super().__new__(derived)

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        targets = [node.target for node in graph.nodes if node.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = getattr(root, "training", self.training)
            for target in targets:
                copy_attr(root, self, target)
        elif isinstance(root, dict):
            self._take(root, graph)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        own = self.__dict__
        own.update(meta={}, _replace_hooks=[], _create_node_hooks=[], _erase_node_hooks=[], _deepcopy_hooks=[])
        nested = "<locals>" in getattr(graph._tracer_cls, "__qualname__", "")  # which no other process could import
        own.update(shape_env=None, _tracer_cls=None if nested else graph._tracer_cls)
        own.update(_tracer_extras=graph._tracer_extras or {})
        self.graph = graph

    def _take(self, parts: dict[str, Any], graph: Graph) -> None:
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module") and node.target not in parts:
                raise RuntimeError(
                    f"Node {node} referenced target {node.target} but that target was not provided in ``root``!"
                )
        used = dict.fromkeys(node.target for node in graph.nodes if node.op in ("get_attr", "call_module"))
        for target in sorted(used, key=lambda path: path.count(".")):
            place(parts[target], self, target)

    # --- the program -------------------------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph that ``forward`` runs. One of another module is copied when it is set."""
        return self.__dict__["_graph"]  # type: ignore[no-any-return]

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(graph)}")
        self.__dict__["_graph"] = graph
        graph.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source text of ``forward``."""
        if "_code" not in self.__dict__:
            raise RuntimeError("Code has not been generated! Please report a bug to PyTorch")
        return self.__dict__["_code"]  # type: ignore[no-any-return]

    @property
    def _boxed_call(self) -> bool:
        return isinstance(self._graph._codegen, _BoxedCodeGen)

    def recompile(self) -> PythonCode:
        """Write ``forward`` from the graph anew."""
        codegen, own = self._graph._codegen, self.__dict__
        if isinstance(codegen, PyTreeCodeGen) and codegen.pytree_info is not None:
            own["_in_spec"], own["_out_spec"] = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
        program: PythonCode = self._graph.python_code("self")
        forward, file = _compiled(program.src, program.globals)
        own["_code"], own["_lineno_map"] = program.src, program._lineno_map
        own["_prologue_start"] = program._prologue_start
        cls: Any = type(self)
        weakref.finalize(forward, _forget, file, id(forward.__globals__))
        cls._file, cls.forward = file, forward
        return program

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            if frames and frames[-1].filename == type(self)._file:
                print(_error_message(frames[-1]), file=sys.stderr)
                raise error.with_traceback(None)  # noqa: B904
            raise

    _call_impl = __call__

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        *,
        fast_sympy_print: bool = False,
        expanded_def: bool = False,
        additional_meta: list[str] | None = None,
    ) -> str:
        """The class as text, with its submodules that are graphs and what is known of values; printed unless not."""
        options = {"include_stride": include_stride, "include_device": include_device, "expanded_def": expanded_def}
        return print_readable(self, type(self).__name__, print_output, additional_meta=additional_meta, **options)

    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Write a package into a folder, from which ``module_name`` can be imported: the program, and its tensors."""
        to_folder(self, folder, module_name)

    def __str__(self) -> str:
        more = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__str__(), self._code, more])

    # --- copies ------------------------------------------------------------------------------------------------------

    def _parts(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _OWN}

    def _deepcopy_init(self) -> Callable[..., None]:
        """What makes a copy of a module that has what this one has and of a graph: for subclasses to override."""
        return GraphModule.__init__

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        if type(self)._deepcopy_init is not GraphModule._deepcopy_init:
            made = memo[id(self)] = self._plain_class.__new__(self._plain_class)
            body = copy.deepcopy(self.__dict__, memo)
            self._deepcopy_init()(made, _CodeOnlyModule(body), body["_graph"])
            made.meta.update(body["meta"])
            return made
        # Known before its parts are copied, which may hold the module.
        made = memo[id(self)] = self._plain_class.__new__(self._plain_class)
        return self._copied(made, copy.deepcopy(self._parts(), memo), copy.deepcopy(self._graph, memo))

    def __copy__(self) -> GraphModule:
        made = self._plain_class.__new__(self._plain_class)
        return self._copied(made, copy.copy(self._parts()), self._graph.__deepcopy__({}))

    def _copied(self, made: GraphModule, parts: dict[str, Any], graph: Graph) -> GraphModule:
        _fill(made, parts, graph, type(self).__name__)
        for hook in self.__dict__.get("_deepcopy_hooks", ()):
            hook(made)
        return made

    def __reduce__(self) -> Any:
        return _put_together, (self._plain_class, self._parts(), self._graph, type(self).__name__)

    def __reduce_package__(self, exporter: Any) -> tuple[Any, ...]:
        return reduce_package_graph_module, taken_apart(self, exporter)

    def _replicate_for_data_parallel(self) -> GraphModule:
        return self.__copy__()

    # --- who hears of changes ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _set_replace_hook(self, f: Callable[..., Any]) -> Iterator[None]:
        """Within it, ``f(old, new, user)`` hears of names that change and of inputs that are replaced."""
        self._register_replace_node_hook(f)
        try:
            yield
        finally:
            self._unregister_replace_node_hook(f)

    def _register_replace_node_hook(self, f: Callable[..., Any]) -> None:
        assert callable(f), "replace hook must be a callable."
        self._replace_hooks.append(f)

    def _unregister_replace_node_hook(self, f: Callable[..., Any]) -> None:
        self._replace_hooks.remove(f)

    def _register_create_node_hook(self, f: Callable[..., Any]) -> None:
        assert callable(f), "create_node hook must be a callable."
        self._create_node_hooks.append(f)

    def _unregister_create_node_hook(self, f: Callable[..., Any]) -> None:
        self._create_node_hooks.remove(f)

    def _register_erase_node_hook(self, f: Callable[..., Any]) -> None:
        assert callable(f), "erase_node hook must be a callable."
        self._erase_node_hooks.append(f)

    def _unregister_erase_node_hook(self, f: Callable[..., Any]) -> None:
        self._erase_node_hooks.remove(f)

    def _register_deepcopy_hook(self, f: Callable[..., Any]) -> None:
        assert callable(f), "deepcopy hook must be a callable."
        self._deepcopy_hooks.append(f)

    def _unregister_deepcopy_hook(self, f: Callable[..., Any]) -> None:
        self._deepcopy_hooks.remove(f)


def _error_message(frame: traceback.FrameSummary) -> str:
    """Where in a written program an error came up, with the lines around it."""
    number = frame.lineno or 0
    lines = linecache.getlines(frame.filename)
    told = f"Call using an FX-traced Module, line {number} of the traced Module's generated forward function:"
    before = "".join(lines[max(number - 2, 0) : number])
    after = "\n".join(lines[number : number + 2])
    marker = "~" * len(frame.line or "") + "~~~ <--- HERE"
    return "\n".join([traceback.format_exc(), told, before, marker, after])


def reduce_package_graph_module(importer: Any, body: dict[str, Any], generated_module_name: str) -> GraphModule:
    """The module that a package has in parts, whose program is a module of the package."""
    forward, (tracer,) = importer.import_module(generated_module_name).forward, _tracers
    return put_together(forward, body, tracer, GraphModule)  # type: ignore[no-any-return]


def _put_together(cls: type[GraphModule], parts: dict[str, Any], graph: Graph, name: str) -> GraphModule:
    """A module from what another had, which is its own from now on."""
    made = cls.__new__(cls)
    _fill(made, parts, graph, name)
    return made


def _fill(made: GraphModule, parts: dict[str, Any], graph: Graph, name: str) -> None:
    Module.__init__(made)
    type(made).__name__ = name
    made.__dict__.update(parts)
    made.graph = graph
