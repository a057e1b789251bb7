"""Switches of the whole process that PyTorch has as functions of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack import _native
from tesserack.amp import _autocast
from tesserack.amp._autocast import (
    autocast,
    clear_autocast_cache,
    get_autocast_dtype,
    is_autocast_cache_enabled,
    is_autocast_enabled,
    set_autocast_cache_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)
from tesserack.backends._card import CARD
from tesserack.utils import warnings as _warnings

__all__ = [
    "are_deterministic_algorithms_enabled",
    "autocast",
    "clear_autocast_cache",
    "compile",
    "get_autocast_cpu_dtype",
    "get_autocast_dtype",
    "get_autocast_gpu_dtype",
    "get_deterministic_debug_mode",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "is_autocast_cache_enabled",
    "is_autocast_cpu_enabled",
    "is_autocast_enabled",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled",
    "set_autocast_cache_enabled",
    "set_autocast_cpu_dtype",
    "set_autocast_cpu_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
    "set_autocast_gpu_dtype",
    "set_default_tensor_type",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_num_interop_threads",
    "set_warn_always",
    "use_deterministic_algorithms",
]

_state: dict[str, Any] = {
    "deterministic": False,
    "warn_only": False,
    "fill": True,
    "matmul": "highest",
    "interop": 1,
    "attention": frozenset(),  # ways of computing it that are not permitted
}


# --- deterministic results -----------------------------------------------------------------------------------------


#: Called when deterministic results are asked for, or no longer: by backends that choose kernels by it.
_on_deterministic: list[Callable[[], None]] = []


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for results that are the same in every run. Kernels of the cpu give such results in either mode; generated
    ones then add up at one index in order, one item for each line.

    Every kernel call carries it: a card's kernel without a deterministic way declines, and the core goes another. What
    has none, such as ``put_`` and the unpooling layers, raises ``RuntimeError``, or warns with ``warn_only``. New
    memory is filled: see :mod:`tesserack.utils.deterministic`.
    """
    for name, given in (("mode", mode), ("warn_only", warn_only)):
        if not isinstance(given, bool):
            raise TypeError(f"use_deterministic_algorithms: expected {name} as bool, got {type(given).__name__}")
    changed = mode != _state["deterministic"]
    _state["deterministic"], _state["warn_only"] = mode, warn_only
    _tell_kernels()
    if changed:
        for told in _on_deterministic:
            told()


def are_deterministic_algorithms_enabled() -> bool:
    """Whether deterministic results were asked for."""
    return bool(_state["deterministic"])


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether an operator without a deterministic kernel is to warn rather than to fail."""
    return bool(_state["warn_only"])


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """The same as :func:`use_deterministic_algorithms`, by ``"default"``, ``"warn"``, ``"error"`` or 0, 1, 2."""
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"set_deterministic_debug_mode: expected int or str, got {type(debug_mode).__name__}")
    modes = {"default": 0, "warn": 1, "error": 2}
    number = modes.get(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if number not in (0, 1, 2):
        raise RuntimeError(f"set_deterministic_debug_mode: expected default, warn or error, got {debug_mode!r}")
    use_deterministic_algorithms(number > 0, warn_only=number == 1)


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2: see :func:`set_deterministic_debug_mode`."""
    return 0 if not _state["deterministic"] else 1 if _state["warn_only"] else 2


# --- precision -----------------------------------------------------------------------------------------------------


def set_float32_matmul_precision(precision: str) -> None:
    """Say which precision products of float32 need: ``"highest"``, ``"high"`` or ``"medium"``.

    It permits, and does not oblige; products of the cpu are always of the highest.
    """
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"set_float32_matmul_precision: expected highest, high or medium, got {precision!r}")
    _state["matmul"] = precision
    _tell_kernels()


def is_attention_permitted(way: str) -> bool:
    """Whether a way of computing attention is permitted; kernels choose for themselves, programs may ask."""
    return way not in _state["attention"]


def permit_attention(**ways: bool) -> None:
    """Permit ways of computing attention, or no longer."""
    off = {way for way, permitted in ways.items() if not permitted}
    _state["attention"] = frozenset(_state["attention"] - ways.keys() | off)


def _tell_kernels() -> None:
    """What ``ts_call.flags`` says from now on, in all threads."""
    products = {"highest": 0, "high": 2, "medium": 4}
    _native._set_call_flags(int(_state["deterministic"]) | products[_state["matmul"]])
    _native._set_determinism(get_deterministic_debug_mode(), bool(_state["deterministic"] and _state["fill"]))


def get_float32_matmul_precision() -> str:
    """What :func:`set_float32_matmul_precision` set."""
    return str(_state["matmul"])


def get_autocast_cpu_dtype() -> _native.dtype:
    """The dtype of autocast regions of the cpu."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> _native.dtype:
    """The dtype of autocast regions of cards."""
    return get_autocast_dtype(CARD)


def set_autocast_cpu_dtype(dtype: _native.dtype) -> None:
    """Set the dtype of autocast regions of the cpu."""
    set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype: _native.dtype) -> None:
    """Set the dtype of autocast regions of cards."""
    set_autocast_dtype(CARD, dtype)


def is_autocast_cpu_enabled() -> bool:
    """Whether the thread is in an enabled autocast region of the cpu."""
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Switch autocast of the cpu."""
    _autocast.set_autocast_enabled("cpu", enabled)


def set_flush_denormal(mode: bool) -> bool:
    """Always False: kernels keep denormal numbers."""
    return False


def set_default_tensor_type(t: Any) -> None:
    """Set the default dtype, and the device, by a class such as ``FloatTensor`` or its name.

    ``TypeError`` unless it is of a floating dtype.
    """
    import tesserack

    _warnings.warn_once("set_default_tensor_type() is deprecated; use set_default_dtype() and set_default_device()")
    name = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
    kind = getattr(tesserack, name.rpartition(".")[2], None)
    dtype = getattr(kind, "dtype", None)
    if dtype is None or not dtype.is_floating_point:
        raise TypeError(f"set_default_tensor_type: expected the class of a floating dtype, got {name}")
    _native.set_default_dtype(dtype)
    if f".{CARD}." in f".{name}":
        tesserack.set_default_device(CARD)


# --- threads and warnings ------------------------------------------------------------------------------------------


def set_num_interop_threads(num: int) -> None:
    """Kept for programs that set it: operators of one program do not run side by side. ``RuntimeError`` below 1."""
    if num < 1:
        raise RuntimeError(f"set_num_interop_threads: expected a positive number, got {num}")
    _state["interop"] = num


def get_num_interop_threads() -> int:
    """What :func:`set_num_interop_threads` set, 1 at first."""
    return int(_state["interop"])


def set_warn_always(b: bool, /) -> None:
    """Whether warnings of the core are given every time."""
    _warnings.set_always(bool(b))


def is_warn_always_enabled() -> bool:
    """What :func:`set_warn_always` set."""
    return _warnings.is_always()
