"""What PyTorch's compiler may be asked for by ``mode`` and ``options``: its names, which change nothing here, and
errors for others, which would go unnoticed.

``compat/inductor_options.txt`` lists the options of PyTorch 2.13 with the types that it checks.
"""

from __future__ import annotations

import difflib
import functools
from pathlib import Path
from typing import Any

__all__ = ["check_options"]

_COMPAT = Path(__file__).parents[2] / "compat"
_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_TYPES: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
# Of earlier releases, whose programs still set them.
_EARLIER = ("abi_compatible", "aot_inductor.abi_compatible", "c_shim_version", "guard_filter_fn", "triton.convolution",
            "triton.max_block", "triton.mm", "tune_layout")  # fmt: skip


@functools.cache
def _known() -> dict[str, str]:
    """Types by options' names; empty where any will do."""
    lines = (_COMPAT / "inductor_options.txt").read_text().splitlines()
    found = {name: kind for name, _, kind in (line.partition(" ") for line in lines)}
    return {**dict.fromkeys(_EARLIER, ""), **found}


def check_options(backend: Any, mode: Any = None, options: dict[str, Any] | None = None) -> None:
    """``RuntimeError`` for a mode and options that PyTorch's compiler does not have. Others take what they like."""
    if backend != "inductor":
        return
    if mode and mode not in _MODES:
        raise RuntimeError(f"compile: Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    for name, value in (options or {}).items():
        kind = _known().get(name.replace("-", "_"))
        if kind is None:
            raise RuntimeError(f"compile: Unexpected optimization option {name}; {_alike(name)}")
        if kind and not isinstance(value, _TYPES[kind]):
            raise RuntimeError(f"compile: Unexpected type of attr {name}, got {type(value).__name__} should be {kind}")


def _alike(name: str) -> str:
    found = difflib.get_close_matches(name, _known(), 3)
    return (
        f"known options like it: {', '.join(found)}" if found else "torch._inductor.config of PyTorch has no such name"
    )
