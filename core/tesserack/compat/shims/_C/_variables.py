"""``torch._C._VariableFunctions``: the functions of ``torch`` that are operators, as packages list and wrap them."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from tesserack.compat import _facade, _names
from tesserack.ops.foreach import FUNCTIONS

__all__ = ["VariableFunctions", "find"]

# Functions of torch that are written in Python or are about no tensors.
_OTHERS = frozenset(
    (
        "broadcast_shapes", "clear_autocast_cache", "compile", "compiled_with_cxx11_abi", "cond", "eig",
        "from_dlpack", "initial_seed", "is_grad_enabled", "is_inference_mode_enabled", "is_storage", "is_tensor",
        "is_warn_always_enabled", "load", "lobpcg", "lstsq", "lu", "manual_seed", "matrix_rank", "pca_lowrank", "save",
        "seed", "solve", "svd_lowrank", "symeig", "to_dlpack", "typename", "unique", "unravel_index",
        "use_deterministic_algorithms", "vmap", "while_loop",
    )
)  # fmt: skip
_SETTINGS = ("are_", "get_", "set_", "sym_", "is_anomaly", "is_autocast", "is_deterministic")


@functools.cache
def _listed() -> tuple[str, ...]:
    """The names that are found here, of those that PyTorch has."""
    torch = _facade.get("torch")
    public = {
        name
        for name in _names.names("torch")
        if name[0].islower() and name not in _OTHERS and (name == "get_device" or not name.startswith(_SETTINGS))
    }
    shown = torch._tesserack_load()[0].__all__
    private = {name for name in shown if name[0] == "_" and not name.startswith(("_check", "_is_"))} - {"_assert"}
    private.update(FUNCTIONS)
    return tuple(sorted(name for name in {*public, *private} if _is_function(torch, name)))


def _is_function(torch: Any, name: str) -> bool:
    found = getattr(torch, name) if torch._tesserack_has(name) else None
    return callable(found) and not isinstance(found, (type, ModuleType))


def find(name: str) -> Any:
    """What ``torch`` has under the name; ``AttributeError`` where it has nothing."""
    torch = _facade.get("torch")
    if name.startswith("__") or not torch._tesserack_has(name):
        raise AttributeError(f"torch._C._VariableFunctions has no attribute {name!r}", name=name)
    return getattr(torch, name)


class _Functions(type):
    """Has what ``torch`` has: pickles name a function so, as an attribute of a class."""

    def __getattr__(cls, name: str) -> Any:
        return find(name)

    def __dir__(cls) -> list[str]:
        return sorted({*super().__dir__(), *_listed()})


class VariableFunctions(metaclass=_Functions):
    """``torch._C._VariableFunctionsClass``."""
