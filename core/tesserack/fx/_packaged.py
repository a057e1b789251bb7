"""Modules of graphs in packages: the program as a module of its own, from which the graph is traced again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack.fx._naming import shown_package
from tesserack.fx._writer import import_lines
from tesserack.nn.modules.module import Module

__all__ = ["_CodeOnlyModule", "put_together", "taken_apart"]

_TRACES = "_graphmodule_graph_node_meta_stack_trace"


def taken_apart(module: Any, exporter: Any) -> tuple[dict[str, Any], str]:
    """What a module has besides its graph, and the name of the module of the package in which its program is."""
    parts = {**module._parts(), "_graphmodule_cls_name": type(module).__name__}
    parts[_TRACES] = {n.name: n.meta["stack_trace"] for n in module.graph.nodes if "stack_trace" in n.meta}
    name = f"fx-generated._{exporter.get_unique_id()}"
    program, known = module.recompile(), import_lines(shown_package())
    lines = {known.get(word) or _import_line(word, value, exporter) for word, value in program.globals.items()}
    exporter.save_source_string(name, "\n".join(sorted(lines)) + "\n" + program.src)
    return parts, name


def _import_line(name: str, value: Any, exporter: Any) -> str:
    module, attribute = exporter.importer.get_name(value)
    return f"from {module} import {attribute} as {name}"


class _CodeOnlyModule(Module):
    """What a module of a graph has, without the graph: ``body`` becomes its ``__dict__``."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def put_together(forward: Callable[..., Any], parts: dict[str, Any], tracer: Any, make: Callable[..., Any]) -> Any:
    """The module again, traced by the class of its own or by ``tracer``; ``make`` makes it of parts and a graph."""
    traces = parts.pop(_TRACES, None) or {}
    tracer = parts.get("_tracer_cls") or tracer

    class KeepModules(tracer):  # type: ignore[misc]
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    plain = type("_CodeOnlyModule", (_CodeOnlyModule,), {"forward": forward})(parts)
    graph = KeepModules().trace(plain, **(parts.get("_tracer_extras") or {}))
    for node in graph.nodes:
        if node.name in traces:
            node.meta["stack_trace"] = traces[node.name]
    graph._tracer_cls = tracer
    made = make(plain, graph, parts.get("_graphmodule_cls_name", "GraphModule"))
    for name, value in parts.items():
        if not hasattr(made, name):
            setattr(made, name, value)
    return made
