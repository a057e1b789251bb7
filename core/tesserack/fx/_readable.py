"""Modules of graphs as text that a person reads."""

from __future__ import annotations

from typing import Any

from tesserack.fx._naming import shown_package

__all__ = ["print_readable"]


def _indented(text: str) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(f"    {line}".rstrip() for line in rest)])


def print_readable(module: Any, name: str, print_output: bool = True, **options: Any) -> str:
    """A module as a class, with what is known of its values as annotations, and submodules that are graphs in it."""
    code = module._graph.python_code("self", verbose=True, **options).src.strip()
    text = f"class {name}({shown_package()}.nn.Module):\n    {_indented(code)}\n"
    inner = [
        print_readable(child, child_name, print_output=False, **options)
        for child_name, child in module.named_children()
        if hasattr(child, "_graph")
    ]
    text += "".join("\n".join(f"    {line}".rstrip() for line in ["", *part.splitlines()]) + "\n" for part in inner)
    if print_output:
        print(text)
    return text
