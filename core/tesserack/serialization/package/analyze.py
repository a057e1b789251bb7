"""What a program uses, what broke a package, and what came out of one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from tesserack.serialization.package._mangling import is_mangled
from tesserack.serialization.package.package_exporter import PackagingError

__all__ = ["find_first_use_of_broken_modules", "is_from_package", "trace_dependencies"]


def find_first_use_of_broken_modules(exc: PackagingError) -> dict[str, list[str]]:
    """For each module that an error names, the modules by which it was first met."""
    if not isinstance(exc, PackagingError):
        raise AssertionError(f"expected a PackagingError, got {type(exc).__name__}")
    graph = exc.dependency_graph
    return {name: graph.first_path(name) for name, said in graph.nodes.items() if said.get("error")}


def is_from_package(obj: Any) -> bool:
    """Whether an object, or a module, is of a package's own code."""
    return is_mangled(obj.__name__ if type(obj) is ModuleType else type(obj).__module__)


def trace_dependencies(callable: Callable[..., Any], inputs: Iterable[tuple[Any, ...]]) -> list[str]:
    """The modules whose functions run when ``callable`` is called with each of the inputs."""
    used: set[str] = set()

    def watch(frame: Any, event: str, _: Any) -> None:
        if event != "call":
            return
        name = frame.f_code.co_name
        holders = (frame.f_globals, frame.f_locals)
        function = next((holder[name] for holder in holders if name in holder), None)
        if function is None and "self" in frame.f_locals:
            function = getattr(frame.f_locals["self"], name, None)
        if module := getattr(function, "__module__", None):
            used.add(module)

    before = sys.getprofile()
    try:
        sys.setprofile(watch)
        for given in inputs:
            callable(*given)
    finally:
        sys.setprofile(before)
    return [*used]
