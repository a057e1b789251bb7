"""``torch.__future__``: how modules convert their parameters."""

from __future__ import annotations

__all__ = [
    "get_overwrite_module_params_on_conversion",
    "get_swap_module_params_on_conversion",
    "set_overwrite_module_params_on_conversion",
    "set_swap_module_params_on_conversion",
]

_state = {"overwrite": False, "swap": False}


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Kept for programs that set it."""
    _state["overwrite"] = bool(value)


def get_overwrite_module_params_on_conversion() -> bool:
    """What the setter set."""
    return _state["overwrite"]


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Kept for programs that set it."""
    _state["swap"] = bool(value)


def get_swap_module_params_on_conversion() -> bool:
    """What the setter set."""
    return _state["swap"]
