"""``torch._C._functorch``: tensors that stand for one entry of a call of ``vmap``, by PyTorch's names."""

from __future__ import annotations

from typing import Any

from tesserack.autograd.function import batching
from tesserack.func._batched import Batched, Fallback, entries

__all__: list[str] = []


def is_batchedtensor(tensor: Any) -> bool:
    """Whether a tensor stands for one entry of several."""
    return type(tensor) is Batched


def is_functorch_wrapped_tensor(tensor: Any) -> bool:
    """Whether a transform of functions is at work on a tensor that would be seen: ``vmap`` alone wraps here."""
    return is_batchedtensor(tensor)


def get_unwrapped(tensor: Any) -> Any:
    """The tensor of all entries. ``RuntimeError`` for a tensor that has none."""
    if not is_batchedtensor(tensor):
        raise RuntimeError(f"get_unwrapped: expected a batched tensor, got {type(tensor).__name__}")
    return tensor.value


def maybe_get_bdim(tensor: Any) -> int:
    """The dim that counts the entries, always the first; -1 for a tensor that is not batched."""
    return 0 if is_batchedtensor(tensor) else -1


def maybe_get_level(tensor: Any) -> int:
    """The number of the call of ``vmap``, from 1; -1 for a tensor that is not batched."""
    return int(tensor.level) if is_batchedtensor(tensor) else -1


def maybe_current_level() -> int | None:
    """The number of the innermost call of ``vmap``; None outside."""
    return len(batching) or None


def _is_vmap_fallback_enabled() -> bool:
    """Whether ``vmap`` may run an operator entry by entry."""
    return Fallback.enabled


def _set_vmap_fallback_enabled(enabled: bool) -> None:
    """Let ``vmap`` run operators entry by entry, or have it refuse to."""
    Fallback.enabled = enabled


def _add_batch_dim(tensor: Any, in_dim: int, level: int) -> Any:
    """What stands for one entry along ``in_dim`` in the call of ``vmap`` with that number."""
    return Batched(tensor.movedim(in_dim, 0), level)


def _remove_batch_dim(tensor: Any, level: int, batch_size: int, out_dim: int) -> Any:
    """The tensor of all entries, with them as its dim ``out_dim``: the same for each if it does not depend on them."""
    return entries(tensor, level, batch_size).movedim(0, out_dim)
