"""Parts of modules by their dotted names."""

from __future__ import annotations

from typing import Any

from tesserack._native import Tensor
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = ["Submodules", "copy_attr", "place"]


def copy_attr(from_module: Any, to_module: Module, target: str) -> None:
    """Have a module own what another one has under a dotted name; the modules between are made anew."""
    *parents, last = target.split(".")
    for name in parents:
        found, there = getattr(from_module, name), getattr(to_module, name, None)
        if found is there:
            return  # owned whole already
        if there is None:
            to_module.add_module(name, Module())
        from_module, to_module = found, getattr(to_module, name)
    value = getattr(from_module, last)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        persistent = last not in getattr(from_module, "_non_persistent_buffers_set", ())
        to_module.register_buffer(last, value, persistent=persistent)
    else:
        setattr(to_module, last, value)


def place(value: Any, to_module: Module, target: str) -> None:
    """Have a module own a value under a dotted name."""
    *parents, last = target.split(".")
    for name in parents:
        if getattr(to_module, name, None) is None:
            to_module.add_module(name, Module())
        to_module = getattr(to_module, name)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        to_module.register_buffer(last, value)
    else:
        setattr(to_module, last, value)


class Submodules:
    """What a module of a graph can do with its submodules."""

    graph: Any

    def add_submodule(self, target: str, m: Module) -> bool:
        """Add a submodule under a dotted name, with modules above it as needed; False if something else is there."""
        *parents, last = target.split(".")
        module: Any = self
        for name in parents:
            if not hasattr(module, name):
                module.add_module(name, Module())
            module = getattr(module, name)
            if not isinstance(module, Module):
                return False
        module.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove a submodule by its dotted name; False if there is none."""
        *parents, last = target.split(".")
        module: Any = self
        for name in parents:
            module = getattr(module, name, None)
        if not isinstance(module, Module) or not isinstance(getattr(module, last, None), Module):
            return False
        delattr(module, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove submodules that the graph does not name, nor anything in them."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = node.target.split(".")
                used.update(".".join(parts[:k]) for k in range(1, len(parts) + 1))
                if node.op == "call_module":
                    used.update(self._inside(node.target))
        for name, _ in [*self.named_modules()]:  # type: ignore[attr-defined]
            if name and name not in used:
                self.delete_submodule(name)

    def _inside(self, target: str) -> set[str]:
        found: Any = self
        for name in target.split("."):
            found = getattr(found, name, None)
        return {f"{target}.{name}" for name, _ in found.named_modules() if name} if isinstance(found, Module) else set()
