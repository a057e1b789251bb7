"""``torch._C``: the few names of PyTorch's extension module that programs take from it."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

import tesserack
from tesserack import _native
from tesserack._native import Generator, Size, device, dtype, is_grad_enabled, layout, memory_format
from tesserack._tensor.overrides import DisableTorchFunction, DisableTorchFunctionSubclass, function_modes
from tesserack._tensor.subclass import no_override
from tesserack.autograd.function import batching
from tesserack.compat.shims._C._jit import *  # noqa: F403
from tesserack.compat.shims._C._types import try_infer as _jit_try_infer_type  # noqa: F401
from tesserack.compat.shims._C._variables import VariableFunctions
from tesserack.func._batched import Fallback
from tesserack.ops.random import default_generator as _default_generator
from tesserack.utils import deterministic
from tesserack.utils.futures import Future

__all__ = [
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "Future",
    "Generator",
    "Size",
    "device",
    "dtype",
    "is_grad_enabled",
    "layout",
    "memory_format",
]

_disabled_torch_function_impl = no_override
TensorBase: Any = _native.Tensor
_TensorBase = TensorBase
_has_cuda = _has_mps = _has_xpu = _has_mkldnn = False
_GLIBCXX_USE_CXX11_ABI = True
has_lapack = has_openmp = has_spectral = True
has_mkl = False


def _current_graph_task_id() -> int:
    """The number of the backward that this thread runs, -1 outside of one."""
    return int(_native._current_run())


def _infer_size(a: Any, b: Any) -> Size:
    """The shape to which two shapes are broadcast."""
    if not (isinstance(a, Size) and isinstance(b, Size)):
        raise RuntimeError(f"_infer_size: expected two torch.Size, got {type(a).__name__} and {type(b).__name__}")
    return tesserack.broadcast_shapes(a, b)


def _will_engine_execute_node(node: Any) -> bool:
    """Whether a node is part of the backward that this thread runs. ``RuntimeError`` outside of one, and of no node."""
    if isinstance(node, _native.Tensor):
        raise RuntimeError("_will_engine_execute_node: expects an grad_fn, got a Tensor; give its .grad_fn")
    return bool(_native._will_run(node))


def _are_functorch_transforms_active() -> bool:
    """Whether a call of ``vmap`` is under way; the other transforms are no state of the process here."""
    return bool(batching)


def _debug_only_are_vmap_fallback_warnings_enabled() -> bool:
    """Whether ``vmap`` warns of operators that it runs entry by entry."""
    return Fallback.warns


def _debug_only_display_vmap_fallback_warnings(enabled: bool) -> None:
    """Have ``vmap`` warn of operators that it runs entry by entry, or not."""
    Fallback.warns = enabled


def _is_torch_function_mode_enabled() -> bool:
    """Whether a mode sees every call of a function."""
    return bool(function_modes())


def _len_torch_function_stack() -> int:
    return len(function_modes())


class TracingState:
    """That this thread runs within ``jit.trace``."""


def _get_tracing_state() -> TracingState | None:
    """A state within ``jit.trace``, None outside of it."""
    return TracingState() if _native._is_tracing() else None


def _is_tracing() -> bool:
    """Whether this thread runs within ``jit.trace``."""
    return bool(_native._is_tracing())


def _log_api_usage_once(event: str) -> None:
    """Nothing: usage is not logged."""


def _get_graph_executor_optimize(new_settings: bool | None = None) -> bool:
    """True: what is compiled is optimised, whatever is asked for."""
    return True


def _get_deterministic_fill_uninitialized_memory() -> bool:
    return bool(deterministic.fill_uninitialized_memory)


def _set_deterministic_fill_uninitialized_memory(mode: bool) -> None:
    if not isinstance(mode, bool):
        raise TypeError(f"expected a bool, but got {type(mode).__name__}")
    deterministic.fill_uninitialized_memory = mode


def _get_privateuse1_backend_name() -> str:
    return "privateuseone"


def _set_grad_enabled(mode: bool) -> None:
    _native.set_grad_enabled(mode)


def _cuda_getDeviceCount() -> int:
    from tesserack.compat.shims._card import Card

    return Card("cuda").device_count()


def _get_default_device() -> str:
    return str(_native.get_default_device())


def _is_alias_of(data: Any, other: Any) -> bool:
    """Whether two tensors have one storage."""
    return data.untyped_storage() is other.untyped_storage()


def _is_torch_function_enabled() -> Any:
    before = _native._overrides_off(True)
    _native._overrides_off(before)
    return not before


class _WeakTensorRef:
    """A reference that does not keep its tensor alive."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = weakref.ref(tensor)

    def expired(self) -> bool:
        """Whether the tensor is gone."""
        return self._tensor() is None


class DispatchKeySet:
    """Names of dispatch keys, as programs pass them about."""

    def __init__(self, *keys: Any) -> None:
        self.keys: frozenset[Any] = frozenset(
            k for key in keys for k in (key.keys if isinstance(key, DispatchKeySet) else [key])
        )

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self, other)

    def has(self, key: Any) -> bool:
        """Whether a key is among them."""
        return key in self.keys


_VariableFunctions = _VariableFunctionsClass = VariableFunctions


class _Keys(type):
    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class DispatchKey(metaclass=_Keys):
    """``DispatchKey.AutocastCPU``: a key by name."""


class _ExcludeDispatchKeyGuard(contextlib.AbstractContextManager[Any]):
    """Within it, calls pass by the keys; of PyTorch's those of autocast mean something here."""

    def __init__(self, keys: DispatchKeySet) -> None:
        self._autocast = any(str(key).startswith("Autocast") for key in keys.keys)
        self._before = False

    def __enter__(self) -> Any:
        if self._autocast:
            self._before = _native._enable_key("Autocast", False)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._autocast:
            _native._enable_key("Autocast", self._before)


def __getattr__(name: str) -> Any:
    if name == "default_generator":
        return _default_generator()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
