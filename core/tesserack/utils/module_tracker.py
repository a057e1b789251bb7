"""Which modules are running."""

from __future__ import annotations

import weakref
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack.autograd.graph import register_multi_grad_hook
from tesserack.nn.modules._hooks import register_module_forward_hook, register_module_forward_pre_hook
from tesserack.nn.modules.module import Module
from tesserack.utils._pytree import tree_leaves

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """As a context: ``parents`` names the modules that are running, forward and backward, ``"Global"`` always.

    ``is_bw`` says whether that is the backward pass. A module is named by its class and its place in the first one
    that was called with it inside.

    >>> import tesserack as ts
    >>> net = ts.nn.Sequential(ts.nn.Linear(2, 2))
    >>> seen = []
    >>> with ModuleTracker() as tracker:
    ...     _ = net[0].register_forward_pre_hook(lambda *_: seen.append(sorted(tracker.parents)))
    ...     _ = net(ts.ones(1, 2))
    >>> seen
    [['Global', 'Sequential', 'Sequential.0']]
    """

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self._names: weakref.WeakKeyDictionary[Module, str] = weakref.WeakKeyDictionary()
        self._open: list[str] = []
        self._backward: list[str] = []
        self._handles: list[Any] = []

    def __enter__(self) -> ModuleTracker:
        self._handles = [
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, always_call=True),
        ]
        return self

    def __exit__(self, *exc: object) -> None:
        for handle in self._handles:
            handle.remove()

    @property
    def is_bw(self) -> bool:
        """Whether gradients are being computed."""
        return bool(self._backward)

    def _name(self, module: Module) -> str:
        if module not in self._names:
            root = type(module).__name__
            for name, part in module.named_modules():
                self._names.setdefault(part, f"{root}.{name}" if name else root)
        return self._names[module]

    def _before(self, module: Module, given: Any) -> None:
        name = self._name(module)
        self._open.append(name)
        self.parents.add(name)
        # The gradients of what came in are the last that the module computes.
        self._watch(given, lambda: self._end(name))

    def _after(self, module: Module, given: Any, result: Any) -> None:
        name = self._open.pop()
        if name not in self._open:
            self.parents.discard(name)
        self._watch(result, lambda: self._begin(name))

    def _watch(self, values: Any, then: Any) -> None:
        tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if tensors:
            self._handles.append(register_multi_grad_hook(tensors, lambda _: then(), mode="any"))

    def _begin(self, name: str) -> None:
        if not self._backward:  # a module that is given nothing with a gradient has no hook for its end
            _native._queue_callback(self._finish)
        self._backward.append(name)
        self.parents.add(name)

    def _finish(self) -> None:
        self._backward.clear()
        self.parents = {"Global", *self._open}

    def _end(self, name: str) -> None:
        if name in self._backward:
            self._backward.remove(name)
        if name not in self._backward:
            self.parents.discard(name)
