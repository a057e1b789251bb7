"""Switches of PyTorch's compiler of scripts: remembered, since programs give them back, and of no effect here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_values: dict[str, Any] = {}


def _switch(name: str, value: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    _values[name] = value

    def get() -> Any:
        return _values[name]

    def put(new: Any) -> Any:
        before, _values[name] = _values[name], new
        return before

    return get, put


_jit_get_inline_everything_mode, _jit_set_inline_everything_mode = _switch("inline everything", False)
_jit_can_fuse_on_cpu, _jit_override_can_fuse_on_cpu = _switch("fuse on cpu", False)
_jit_can_fuse_on_cpu_legacy, _jit_override_can_fuse_on_cpu_legacy = _switch("fuse on cpu, legacy", False)
_jit_can_fuse_on_gpu, _jit_override_can_fuse_on_gpu = _switch("fuse on gpu", False)
_jit_texpr_fuser_enabled, _jit_set_texpr_fuser_enabled = _switch("texpr", False)
_jit_nvfuser_enabled, _jit_set_nvfuser_enabled = _switch("nvfuser", False)
_jit_get_te_must_use_llvm_cpu, _jit_set_te_must_use_llvm_cpu = _switch("llvm", False)
_jit_get_tracer_state_warn, _jit_set_tracer_state_warn = _switch("warn", True)
_debug_get_fusion_group_inlining, _debug_set_fusion_group_inlining = _switch("fusion groups", True)
_debug_get_autodiff_subgraph_inlining, _debug_set_autodiff_subgraph_inlining = _switch("subgraphs", True)
_get_profiling_mode, _jit_set_profiling_mode = _switch("profiling", False)
_get_profiling_executor, _jit_set_profiling_executor = _switch("executor", False)


def _jit_set_emit_hooks(module_hook: Any, function_hook: Any) -> None:
    """Nothing: no module or function is compiled."""


__all__ = [name for name in globals() if name.startswith(("_jit", "_debug", "_get"))]
