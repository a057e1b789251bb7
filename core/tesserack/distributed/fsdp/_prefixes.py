"""Names of tensors below wrappers."""

from __future__ import annotations

from typing import Any

__all__ = ["CHECKPOINT_PREFIX", "FLAT_PARAM", "FSDP_PREFIX", "FSDP_WRAPPED_MODULE", "clean_name", "replace_prefix"]

FSDP_WRAPPED_MODULE = "_fsdp_wrapped_module"
FSDP_PREFIX = FSDP_WRAPPED_MODULE + "."
FLAT_PARAM = "_flat_param"
CHECKPOINT_PREFIX = "_checkpoint_wrapped_module."


def replace_prefix(state_dict: dict[str, Any], old: str, new: str) -> None:
    """Rename the keys that begin with ``old``, in place."""
    if old == new:
        return
    for key in list(state_dict):
        if key.startswith(old):
            state_dict[new + key[len(old) :]] = state_dict.pop(key)


def clean_name(name: str) -> str:
    """The name of a tensor in the model without its wrappers."""
    for prefix in (FSDP_PREFIX, CHECKPOINT_PREFIX, "_orig_mod."):
        name = name.replace(prefix, "")
    return name
