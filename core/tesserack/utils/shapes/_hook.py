"""Packages checked as they are imported, with the functions inside their functions."""

from __future__ import annotations

import ast
import importlib.machinery
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from tesserack.utils.shapes._switch import state

__all__ = ["Finder"]

_NAME = "__tesserack_check_shapes__"


class Finder:
    """Finds the modules of a package; ``check`` gets each once it ran, ``nested`` what its functions define."""

    def __init__(
        self, has: Callable[[str], bool], check: Callable[[ModuleType], None], nested: Callable[[Any], Any]
    ) -> None:
        self._has, self._check, self._nested = has, check, nested

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """The spec of a module of the package, whose loader checks it."""
        if not self._has(fullname):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                if not self._run(loader, module):
                    run(module)
                self._check(module)

            loader.exec_module = exec_module
        return spec

    def _run(self, loader: Any, module: ModuleType) -> bool:
        """Run a module whose source defines functions inside functions; False for others, which run as always."""
        if not state.on or not isinstance(loader, importlib.machinery.SourceFileLoader):
            return False
        path = loader.get_filename(module.__name__)
        tree = ast.parse(loader.get_data(path), path)
        marker = _Marker()
        marker.visit(tree)
        if not marker.count:
            return False
        setattr(module, _NAME, self._nested)
        # Not by way of the file of compiled code, which others import without checks.
        exec(compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True), vars(module))
        return True


class _Marker(ast.NodeTransformer):
    """Decorates what is defined inside functions."""

    def __init__(self) -> None:
        self.count = self._depth = 0

    def _function(self, node: Any) -> Any:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        annotated = node.returns is not None or any(a is not None and a.annotation is not None for a in arguments)
        if self._depth and annotated:
            self._decorate(node, len(node.decorator_list))  # closest to the function itself
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """Outside of other decorators, which may write methods."""
        if self._depth:
            self._decorate(node, 0)
        inside, self._depth = self._depth, 0  # methods are those of the class
        self.generic_visit(node)
        self._depth = inside
        return node

    def _decorate(self, node: Any, place: int) -> None:
        mark = ast.copy_location(ast.Name(_NAME, ast.Load()), node)
        node.decorator_list.insert(place, mark)
        self.count += 1
