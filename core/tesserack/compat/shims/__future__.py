"""``torch.__future__``: how modules convert their parameters."""

from __future__ import annotations

from tesserack.nn.modules import _convert

__all__ = [
    "get_overwrite_module_params_on_conversion",
    "get_swap_module_params_on_conversion",
    "set_overwrite_module_params_on_conversion",
    "set_swap_module_params_on_conversion",
]

_state = {"swap": False}


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether conversions of modules make new parameters instead of giving those there other data."""
    _convert.overwrites_parameters = bool(value)


def get_overwrite_module_params_on_conversion() -> bool:
    """What the setter set."""
    return _convert.overwrites_parameters


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Kept for programs that set it."""
    _state["swap"] = bool(value)


def get_swap_module_params_on_conversion() -> bool:
    """What the setter set."""
    return _state["swap"]
