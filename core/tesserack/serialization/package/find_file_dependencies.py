"""Which modules a source text imports."""

from __future__ import annotations

import ast
import importlib.util
from typing import Any

__all__ = ["find_files_source_depends_on"]

Found = dict[tuple[str, str | None], bool]


def _absolute(name: str | None, package: str, level: int) -> str:
    return importlib.util.resolve_name("." * level + (name or ""), package) if level else name or ""


def _called(node: ast.Call, package: str, found: Found) -> None:
    """A call ``__import__("name", ...)`` with its arguments written out; what is computed is not known."""
    place = dict(zip(("name", "globals", "locals", "fromlist", "level"), node.args, strict=False))
    place.update((word.arg, word.value) for word in node.keywords if word.arg)
    name: Any
    names: Any
    level: Any
    try:
        name, names, level = (
            ast.literal_eval(place[key]) if key in place else default
            for key, default in (("name", None), ("fromlist", ()), ("level", 0))
        )
        module = _absolute(name, package, level)
        names = list(names or ())
    except (ValueError, ImportError, TypeError):
        return
    if not isinstance(module, str) or not module:
        return
    if not names:  # what is asked for, and the package that it is in
        found[module, None] = found[module.rpartition(".")[0] or module, None] = True
    for each in names:
        found[module, None if each == "*" else each] = True


def find_files_source_depends_on(src: str, package: str) -> list[tuple[str, str | None]]:
    """The imports of a text of ``package``: module and name in it, or None where the module itself is meant.

    ``SyntaxError`` for what is no program, ``ImportError`` for relative imports that lead out of the package.

    >>> find_files_source_depends_on("import json\\nfrom . import help", "mine.sub")
    [('json', None), ('mine.sub', 'help')]
    """
    found: Found = {}

    class Visitor(ast.NodeVisitor):
        def visit_Import(self, node: ast.Import) -> None:
            found.update(((alias.name, None), True) for alias in node.names)

        def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
            module = _absolute(node.module, package, node.level)
            found.update(((module, None if alias.name == "*" else alias.name), True) for alias in node.names)

        def visit_Call(self, node: ast.Call) -> Any:
            if isinstance(node.func, ast.Name) and node.func.id == "__import__":
                _called(node, package, found)
            self.generic_visit(node)

    Visitor().visit(ast.parse(src))
    return [*found]
