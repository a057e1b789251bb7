"""What imports what: a package's modules and the edges between them, imports within functions included.

Imports for type checkers alone (``if TYPE_CHECKING``) are none. A name of the topmost package stands for the module
that it is taken from, where the package says so by a table: ``from tesserack import load``, and ``ts.load`` likewise.
``importlib.import_module`` and ``__import__`` of a name that is written out are imports as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["Import", "circles", "computed_imports", "find_modules", "imports_of"]


class Import(NamedTuple):
    """One import, of a module by its full name."""

    target: str
    line: int
    lazy: bool


def find_modules(folder: Path, package: str) -> dict[str, Path]:
    """The modules under a package's folder by full name."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if all(part.isidentifier() for part in parts):
            found[".".join((package, *parts))] = path
    return found


def imports_of(name: str, path: Path, modules: Mapping[str, Path], homes: Mapping[str, str]) -> Iterator[Import]:
    """What a module imports of the modules given; ``homes`` says where names of theirs are taken from."""
    for target, line, lazy in _read(name, path).found:
        module = _resolve(target, modules, homes)
        if module is not None and module != name:
            yield Import(module, line, lazy)


def computed_imports(name: str, path: Path) -> list[int]:
    """Lines where a module imports what it computes the name of, and which may be any module."""
    return _read(name, path).computed


def _read(name: str, path: Path) -> _Reader:
    reader = _Reader(name, name if path.name == "__init__.py" else name.rpartition(".")[0])
    reader.visit(ast.parse(path.read_text()))
    return reader


def _resolve(target: str, modules: Mapping[str, Path], homes: Mapping[str, str]) -> str | None:
    words = target.split(".")
    for count in range(len(words), 0, -1):
        head = ".".join(words[:count])
        if head in homes:
            return _resolve(".".join((homes[head], *words[count:])), modules, {})
        if head in modules:
            return head
    return None


class _Reader(ast.NodeVisitor):
    """Collects the imports of a module, and what it takes from packages that it imports whole."""

    def __init__(self, module: str, package: str) -> None:
        self.found: list[tuple[str, int, bool]] = []
        self.computed: list[int] = []
        self._package = package
        self._root = module.partition(".")[0]
        self._aliases: set[str] = set()  # names that stand for the topmost package
        self._importers = {"__import__", "importlib.import_module"}  # as this module names functions that import
        self._depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_If(self, node: ast.If) -> None:
        if any(isinstance(part, ast.Name) and part.id == "TYPE_CHECKING" for part in ast.walk(node.test)):
            for part in node.orelse:
                self.visit(part)
        else:
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name == self._root or (alias.name.startswith(f"{self._root}.") and not alias.asname):
                self._aliases.add(alias.asname or self._root)
            if alias.name == "importlib" or (alias.name.startswith("importlib.") and not alias.asname):
                self._importers.add(f"{alias.asname or 'importlib'}.import_module")
            self._note(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = self._package.rsplit(".", node.level - 1)[0] if node.level else ""
        module = ".".join(filter(None, (base, node.module)))
        for alias in node.names:
            if (module, alias.name) == ("importlib", "import_module"):
                self._importers.add(alias.asname or alias.name)
            self._note(f"{module}.{alias.name}", node)

    def visit_Call(self, node: ast.Call) -> None:
        if ast.unparse(node.func) in self._importers:
            given = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "name")]
            self._note_call(given[0] if given else node, node)
        self.generic_visit(node)

    def _note_call(self, given: ast.expr, node: ast.Call) -> None:
        if isinstance(given, ast.Constant) and isinstance(given.value, str):
            level = len(given.value) - len(given.value.lstrip("."))
            base = self._package.rsplit(".", level - 1)[0] if level else ""
            self._note(".".join(filter(None, (base, given.value[level:]))), node)
        else:
            self.computed.append(node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        words = [node.attr]
        value = node.value
        while isinstance(value, ast.Attribute):
            words.append(value.attr)
            value = value.value
        if isinstance(value, ast.Name) and value.id in self._aliases:
            self._note(".".join((self._root, *reversed(words))), node)
        else:
            self.generic_visit(node)

    def _note(self, target: str, node: ast.stmt | ast.expr) -> None:
        self.found.append((target, node.lineno, self._depth > 0))


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules that reach each other, each sorted (Tarjan 1972)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in number:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], number[other])
        if lowest[node] == number[node]:
            at = stack.index(node)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(edges):
        if node not in number:
            visit(node)
    return sorted(found)
