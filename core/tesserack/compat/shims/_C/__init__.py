"""``torch._C``: the few names of PyTorch's extension module that programs take from it."""

from __future__ import annotations

from typing import Any

from tesserack import _native
from tesserack._native import Generator, Size, device, dtype, layout, memory_format
from tesserack._tensor_methods import no_override
from tesserack.futures import Future
from tesserack.overrides import DisableTorchFunction, DisableTorchFunctionSubclass, _modes

__all__ = [
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "Future",
    "Generator",
    "Size",
    "device",
    "dtype",
    "layout",
    "memory_format",
]

_disabled_torch_function_impl = no_override
TensorBase: Any = _native.Tensor
_TensorBase = TensorBase
_has_cuda = _has_mps = _has_xpu = _has_mkldnn = False
_GLIBCXX_USE_CXX11_ABI = True


def _len_torch_function_stack() -> int:
    return len(_modes)


def _get_tracing_state() -> None:
    """None: nothing is traced."""


def _log_api_usage_once(event: str) -> None:
    """Nothing: usage is not logged."""


def _jit_set_profiling_mode(mode: bool) -> bool:
    return False


def _jit_set_profiling_executor(mode: bool) -> bool:
    return False


def _jit_override_can_fuse_on_gpu(mode: bool) -> None:
    """Nothing: there is no fusing."""


def _jit_override_can_fuse_on_cpu(mode: bool) -> None:
    """Nothing: there is no fusing."""


def _jit_set_texpr_fuser_enabled(mode: bool) -> None:
    """Nothing: there is no fusing."""


def _jit_set_nvfuser_enabled(mode: bool) -> bool:
    return False


def _get_privateuse1_backend_name() -> str:
    return "privateuseone"


def _set_grad_enabled(mode: bool) -> None:
    _native.set_grad_enabled(mode)


def _cuda_getDeviceCount() -> int:
    from tesserack.compat.shims._card import Card

    return Card("cuda").device_count()


def _get_default_device() -> str:
    return str(_native.get_default_device())


def _is_torch_function_enabled() -> Any:
    before = _native._overrides_off(True)
    _native._overrides_off(before)
    return not before


_nn: Any = None
