"""``functorch.compile``."""

from tesserack.compat._missing import missing
from tesserack.compat.shims._functorch.aot_autograd import (
    aot_function,
    aot_module,
    aot_module_simplified,
    make_boxed_compiler,
    make_boxed_func,
)
from tesserack.compat.shims._functorch.compilers import memory_efficient_fusion, nop, print_compile

__all__ = [
    "aot_function",
    "aot_module",
    "aot_module_simplified",
    "make_boxed_compiler",
    "make_boxed_func",
    "memory_efficient_fusion",
    "nop",
    "print_compile",
]

# What can be named, and fails when it is used.
_MISSING = (
    *(
        "clear_compile_cache",
        "compiled_function",
        "compiled_module",
        "config",
        "debug_compile",
        "default_decompositions",
    ),
    *("default_partition", "draw_graph", "draw_graph_compile", "get_aot_compilation_context", "get_aot_graph_name"),
    *("get_graph_being_compiled", "min_cut_rematerialization_partition", "minifier", "nnc_jit", "pythonkey_decompose"),
    "ts_compile",
)


def __getattr__(name: str) -> object:
    if name in _MISSING:
        return missing(f"functorch.compile.{name}")
    raise AttributeError(f"module 'functorch.compile' has no attribute {name!r}")
