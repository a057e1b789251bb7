"""Tracing programs with ``assert`` and annotated assignments, which are rewritten into calls first."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import types
import warnings
from collections.abc import Callable
from typing import Any

from tesserack.fx._naming import shown_function
from tesserack.fx._symbolic_trace import Tracer
from tesserack.fx.annotate import annotate
from tesserack.fx.graph import Graph
from tesserack.nn.modules.module import Module

__all__ = ["AST_Rewriter", "RewritingTracer"]

# Constants in whose places functions come: no text names them, so that no name of the program is taken.
_FUNCTIONS: dict[str, Callable[[], Any]] = {
    "<fx assert>": lambda: shown_function("_assert"),
    "<fx annotate>": lambda: annotate,
}


def _call(function: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Constant(f"<fx {function}>"), [*args], [])


class AST_Rewriter(ast.NodeTransformer):
    """Writes a function anew, with calls of functions instead of assertions and annotated assignments."""

    def rewrite(self, fn: types.FunctionType) -> types.FunctionType:
        """The function, with the same globals. ``OSError`` where its source is not there."""
        tree = _parsed(inspect.getsource(fn))
        tree = ast.fix_missing_locations(self.visit(tree))
        definition = next(n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))
        definition.decorator_list = []
        free = fn.__code__.co_freevars
        if free:  # within a function that has the names
            names = [ast.Name(name, ast.Store()) for name in free]
            outer = ast.parse("def _outer():\n    pass").body[0]
            assert isinstance(outer, ast.FunctionDef)
            given: list[ast.stmt] = [ast.Assign([name], ast.Constant(None)) for name in names]
            outer.body = [*given, definition]
            tree.body = [outer]
            tree = ast.fix_missing_locations(tree)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of constants that are called
            code = _found(compile(tree, inspect.getsourcefile(fn) or "<rewritten>", "exec"), fn.__name__)
        made: Any = types.FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
        made = functools.update_wrapper(made, fn)
        del made.__wrapped__  # signatures are read from this one
        made.__kwdefaults__ = copy.copy(fn.__kwdefaults__)
        return made  # type: ignore[no-any-return]

    def visit_Assert(self, node: ast.Assert) -> ast.Expr:
        """``torch._assert`` of the condition."""
        self.generic_visit(node)
        return ast.copy_location(ast.Expr(_call("assert", node.test, node.msg or ast.Constant(""))), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """An assignment of the value, annotated."""
        self.generic_visit(node)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], _call("annotate", node.value, node.annotation)), node)


def _parsed(source: str) -> ast.Module:
    """Of a function that may stand within others, and hold texts whose lines begin further left than it does."""
    if not source[:1].isspace():
        return ast.parse(source)
    tree = ast.parse(f"if True:\n{source}")
    assert isinstance(tree.body[0], ast.If)
    tree.body = tree.body[0].body
    return ast.increment_lineno(tree, -1)


def _found(code: types.CodeType, name: str) -> types.CodeType:
    """The code of a function that a module's code makes, with functions in the places of constants."""
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            return _with_functions(const) if const.co_name == name else _found(const, name)
    raise RuntimeError(f"rewrite: {name} is not in its own source")


def _with_functions(code: types.CodeType) -> types.CodeType:
    return code.replace(co_consts=tuple(_replaced(const) for const in code.co_consts))


def _replaced(const: Any) -> Any:
    if isinstance(const, types.CodeType):
        return _with_functions(const)
    if type(const) is str and const in _FUNCTIONS:
        return _FUNCTIONS[const]()
    return tuple(_replaced(item) for item in const) if type(const) is tuple else const


class RewritingTracer(Tracer):
    """A tracer of programs with ``assert``, which becomes a step, and ``x: int = ...``, which becomes a type."""

    def trace(self, root: Module | Callable[..., Any], concrete_args: Any = None) -> Graph:
        """The graph of a module or function, rewritten."""
        return super().trace(_rewrite(root), concrete_args)


def _rewrite(root: Any) -> Any:
    return _rewritten_module(root) if isinstance(root, Module) else AST_Rewriter().rewrite(root)


def _rewritten_module(module: Module) -> Module:
    """A module with the same parts, itself rewritten, as those of its submodules that are the program's."""
    if type(module).__module__.startswith(("tesserack.nn", "torch.nn", "torch.ao.nn")):
        return module
    forward = AST_Rewriter().rewrite(type(module).forward)  # type: ignore[arg-type]
    kind = type("RewrittenModule", (type(module),), {"forward": forward})
    made: Any = kind.__new__(kind)  # type: ignore[call-overload]
    Module.__init__(made)
    made.__dict__.update({name: copy.copy(value) for name, value in vars(module).items()
                          if not isinstance(value, Module)})  # fmt: skip
    made.__dict__["_modules"] = {}
    for name, child in module._modules.items():
        made.add_module(name, child if child is None else _rewritten_module(child))
    return made  # type: ignore[no-any-return]
