"""What submodules are given when a module runs."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import tesserack as ts
from tesserack.fx._compatibility import compatibility
from tesserack.nn.modules.module import Module

__all__ = ["generate_inputs_for_submodules"]


@compatibility(is_backward_compatible=False)
def generate_inputs_for_submodules(
    model: Module, inputs: Sequence[Any], target_submodules: Iterable[str], deepcopy: bool = False
) -> dict[str, Any]:
    """What submodules are given when a module runs, by their names."""
    wanted, results, handles = {*target_submodules}, dict[str, Any](), []

    def noting(name: str) -> Any:
        def note(module: Module, given: Any) -> None:
            results[name] = copy.deepcopy(given) if deepcopy else given

        return note

    try:
        for name, module in model.named_modules():
            if name in wanted:
                handles.append(module.register_forward_pre_hook(noting(name)))
        with ts.no_grad():
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return results
