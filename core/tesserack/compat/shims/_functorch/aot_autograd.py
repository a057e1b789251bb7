"""``torch._functorch.aot_autograd``: what backends take from it."""

from __future__ import annotations

from typing import Any

from tesserack.fx.graph_module import GraphModule
from tesserack.jit._compile.aot import aot_autograd, boxed_nop, make_boxed_func

__all__ = ["aot_module_simplified", "boxed_nop", "make_boxed_func"]


def aot_module_simplified(
    mod: GraphModule, args: Any, fw_compiler: Any, bw_compiler: Any = None, partition_fn: Any = None,
    decompositions: Any = None, **options: Any,
) -> Any:  # fmt: skip
    """What compilers for the forward and the backward graph make of a module, given as a backend is given it."""
    return aot_autograd(fw_compiler, bw_compiler, decompositions=decompositions)(mod, args)
