"""What a program's sources ask of PyTorch: also what lies beyond the line at which the program stopped."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from tesserack._native import Tensor
from tesserack.compat import _facade, _names
from tesserack.compat._report import Report

__all__ = ["add_to", "missing_in"]

_LARGEST = 2_000_000


def add_to(report: Report, script: str) -> None:
    """Add the missing names in the sources of the program and of its modules in the same folder."""
    path = Path(script)
    files = {path.resolve()} if path.is_file() else set()
    for module in [*sys.modules.values()]:
        file = getattr(module, "__file__", None)
        if file and path.is_file() and Path(file).resolve().parent.is_relative_to(path.resolve().parent):
            files.add(Path(file).resolve())
    for file in sorted(files):
        if "site-packages" in file.parts or file.suffix != ".py" or file.stat().st_size > _LARGEST:
            continue
        for name, line in missing_in(file.read_text("utf-8", errors="replace")):
            report.miss(name, f"{file}:{line}")


def missing_in(source: str) -> list[tuple[str, int]]:
    """Names of PyTorch's that a source text uses and Tesserack lacks, with their lines.

    >>> missing_in("import torch as t\\nt.nn.no_such_function(1)\\nt.ones(1)\\nt.Tensor.sum")
    []
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    bound = _imports(tree)
    if not any(target.partition(".")[0] == "torch" for target in bound.values()):
        return []
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found: dict[str, int] = {}
    for name in bound.values():
        if _is_missing(name):
            found.setdefault(name, 1)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        dotted = None if id(node) in inner else _dotted(node, bound)
        if dotted is not None and (missing := _first_missing(dotted)):
            found.setdefault(missing, node.lineno)
        elif dotted is None and _is_missing_method(node, bound):
            found.setdefault(f"torch.Tensor.{node.attr}", node.lineno)
    return sorted(found.items(), key=lambda item: item[1])


def _imports(tree: ast.AST) -> dict[str, str]:
    """What names in a source stand for, of those imported from torch."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "torch":
                    bound[alias.asname or "torch"] = alias.name if alias.asname else "torch"
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] == "torch":
            for alias in node.names:
                if alias.name != "*":
                    bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return bound


def _dotted(node: ast.Attribute, bound: dict[str, str]) -> str | None:
    """``torch.nn.functional.relu`` for an expression that reads so."""
    parts: list[str] = []
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        parts.append(value.attr)
        value = value.value
    if isinstance(value, ast.Name) and value.id in bound:
        return ".".join((bound[value.id], *reversed(parts)))
    return None


def _first_missing(name: str) -> str | None:
    """The shortest beginning of a dotted name that is PyTorch's and not ours."""
    parts = name.split(".")
    return next((part for k in range(2, len(parts) + 1) if _is_missing(part := ".".join(parts[:k]))), None)


def _is_missing(name: str) -> bool:
    module, _, last = name.rpartition(".")
    if _names.has_module(name):
        return not _facade._target_names(name) and not _has(module, last)
    return last in _names.names(module) and not _has(module, last)


def _has(module: str, name: str) -> bool:
    if not module:
        return True
    if module == "torch.Tensor":
        return hasattr(Tensor, name)
    try:
        _facade.get(module)._tesserack_find(name)
    except (AttributeError, ImportError):
        return False
    return True


def _is_missing_method(node: ast.Attribute, bound: dict[str, str]) -> bool:
    """Whether an attribute can only be a method of Tensor that is not there: no other type here has the name."""
    name = node.attr
    if name not in _names.names("torch.Tensor") or hasattr(Tensor, name) or isinstance(node.value, ast.Name) is False:
        return False
    owner = node.value.id if isinstance(node.value, ast.Name) else ""
    common = (str, bytes, list, dict, set, tuple, int, float, complex, type, Path)
    return owner not in bound and owner != "self" and not any(hasattr(kind, name) for kind in common)
