"""``torch._dynamo.config``: any switch can be set, and changes nothing but how many graphs a function may have; those
that programs read are as in PyTorch.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tesserack.compat.shims._settings import Settings, switches
from tesserack.jit._compile import compiled

__all__ = ["patch"]

triton = Settings()
cpp = Settings()
cuda = Settings()
aot_inductor = Settings()
recompile_limit = cache_size_limit = 8
accumulated_recompile_limit = accumulated_cache_size_limit = 256
suppress_errors = verbose = capture_scalar_outputs = capture_dynamic_output_shape_ops = False
automatic_dynamic_shapes = assume_static_by_default = optimize_ddp = guard_nn_modules = True
inline_inbuilt_nn_modules = skip_nnmodule_hook_guards = True
dynamic_shapes = allow_rnn = error_on_recompile = force_parameter_static_shapes = False

patch, __getattr__ = switches(__name__)


_LIMITS = ("recompile_limit", "cache_size_limit")


class _Config(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        """Set a switch; both names of a limit mean the same."""
        for each in _LIMITS if name in _LIMITS else (name,):
            super().__setattr__(each, value)
        if name in _LIMITS:
            compiled.config["recompile_limit"] = int(value)


sys.modules[__name__].__class__ = _Config
