"""``torch.cuda``: the devices that "cuda" means, and a sensible answer where there are none."""

from __future__ import annotations

from typing import Any

from tesserack._native import OutOfMemoryError
from tesserack.backends import DeviceProperties
from tesserack.compat.shims._card import Card
from tesserack.compat.shims._card_functions import functions as _functions
from tesserack.compat.shims.cuda import amp, memory, nvtx, random
from tesserack.compat.shims.cuda._typed import *  # noqa: F403

_members = _functions("cuda")
globals().update(_members)

AcceleratorError = RuntimeError
CudaError = RuntimeError
DeferredCudaCallError = RuntimeError
has_half = True
has_magma = False
default_generators: tuple[Any, ...] = ()

__all__ = ["AcceleratorError", "CudaError", "OutOfMemoryError", "amp", "memory", "nvtx", "random"]
__all__ += [*_members]


class device_of:
    """A context in which the device of a tensor is the current one."""

    def __init__(self, obj: Any) -> None:
        on_card = obj.device.type == "cuda"
        self._context = _members["device"](obj.device if on_card else -1)

    def __enter__(self) -> None:
        self._context.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._context.__exit__(*exc)


class _DeviceGuard:
    """A context in which the device with an index is the current one."""

    def __init__(self, index: int) -> None:
        self._context = _members["device"](index)

    def __enter__(self) -> None:
        self._context.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._context.__exit__(*exc)


def _is_compiled() -> bool:
    return False


def _is_in_bad_fork() -> bool:
    return False


def is_current_stream_capturing() -> bool:
    """Whether the current stream is captured in a graph; False where there is no device."""
    module = Card("cuda").require("") if Card("cuda").is_available() else None
    own = getattr(module, "is_current_stream_capturing", None)
    return bool(own and own())


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """What the backend says; ``(0, 0)`` for those that are not NVIDIA's. Fails without a device."""
    own = getattr(Card("cuda").require("get_device_capability"), "get_device_capability", None)
    return own(device) if own else (0, 0)


class _StandInProperties(DeviceProperties):
    """Properties of a device of another vendor: programs that compare its compute capability find it below any."""

    major = minor = 0
    is_integrated = is_multi_gpu_board = 0


def get_device_properties(device: Any = None) -> DeviceProperties:
    """What the backend tells. Fails without a device."""
    found: DeviceProperties = _members["get_device_properties"](device)
    return found if hasattr(found, "major") else _StandInProperties(**vars(found))


def get_arch_list() -> list[str]:
    """Empty: kernels are the backend's matter."""
    return []


def get_gencode_flags() -> str:
    """Empty: kernels are the backend's matter."""
    return ""


def is_tf32_supported() -> bool:
    """Always False."""
    return False


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Always False: copies go by way of the host unless backends know better."""
    return False


def utilization(device: Any = None) -> int:
    """``ModuleNotFoundError``, as where PyTorch lacks NVIDIA's management library."""
    raise ModuleNotFoundError("torch.cuda.utilization: the card's management library is not read")


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """``ValueError`` outside of 0 to 1; otherwise nothing: backends have no such limit."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"set_per_process_memory_fraction: expected a fraction from 0 to 1, got {fraction}")


def set_sync_debug_mode(debug_mode: Any) -> None:
    """Have hidden waits reported: 0 or ``"default"``, 1 or ``"warn"``, 2 or ``"error"``."""
    _sync["mode"] = {"default": 0, "warn": 1, "error": 2}.get(debug_mode, debug_mode)


def get_sync_debug_mode() -> int:
    """What :func:`set_sync_debug_mode` set."""
    return int(_sync["mode"])


_sync = {"mode": 0}

#: What the cuda backend has, and nothing stands for where it is not installed.
_OF_THE_BACKEND = (
    *("CUDAGraph", "ExternalStream", "cudart", "graph", "graph_pool_handle", "graphs"),
    *("make_graphed_callables", "nccl", "profiler", "_CudaDeviceProperties", "_get_pynvml_handler"),
)


def __getattr__(name: str) -> Any:
    if name == "_initialized":
        return _members["is_initialized"]()
    if name in _OF_THE_BACKEND:
        found = getattr(Card("cuda")._module(), name, None)
        if found is not None:
            return found
        raise AttributeError(f"torch.cuda.{name} is of the cuda backend; pip install tesserack-cuda")
    raise AttributeError(f"module 'torch.cuda' has no attribute {name!r}")
