"""``torch.utils._python_dispatch``: modes below autograd, and tensors that are made of others."""

from __future__ import annotations

from tesserack.aten.modes import TorchDispatchMode
from tesserack.aten.modes import disabled_modes as _disable_current_modes
from tesserack.aten.wrappers import (
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
    is_in_any_mode_without_ignore_compile_internals,
    is_in_torch_dispatch_mode,
    is_traceable_wrapper_subclass,
    is_traceable_wrapper_subclass_type,
    return_and_correct_aliasing,
    transform_subclass,
)

__all__ = [
    "TorchDispatchMode",
    "_disable_current_modes",
    "_get_current_dispatch_mode",
    "_get_current_dispatch_mode_stack",
    "is_in_any_mode_without_ignore_compile_internals",
    "is_in_torch_dispatch_mode",
    "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type",
    "return_and_correct_aliasing",
    "transform_subclass",
]
