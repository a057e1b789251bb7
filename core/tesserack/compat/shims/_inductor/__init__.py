"""``torch._inductor``: graphs run as they are; its switches can be set and change nothing."""

from __future__ import annotations

from tesserack.compat.shims._inductor import compile_fx, config, utils
from tesserack.jit.compiler import cudagraph_mark_step_begin

__all__ = ["compile_fx", "config", "cudagraph_mark_step_begin", "utils"]
