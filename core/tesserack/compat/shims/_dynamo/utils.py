"""``torch._dynamo.utils``."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from tesserack.compat.shims._dynamo.testing import same
from tesserack.compat.shims._guards import detect_fake_mode

__all__ = ["counters", "detect_fake_mode", "same"]

counters: defaultdict[str, Counter[str]] = defaultdict(Counter)


def is_compile_supported(device_type: str) -> bool:
    """Always False."""
    return False


def clone_inputs(example_inputs: Any) -> Any:
    """Copies of tensors, in the same list, tuple or dict."""
    if isinstance(example_inputs, dict):
        return {key: clone_inputs(value) for key, value in example_inputs.items()}
    if isinstance(example_inputs, (list, tuple)):
        return type(example_inputs)(clone_inputs(value) for value in example_inputs)
    if not hasattr(example_inputs, "clone"):
        return example_inputs
    return example_inputs.detach().clone().requires_grad_(example_inputs.requires_grad)


def compile_times(repr: str = "str", aggregate: bool = False) -> Any:
    """A table without rows: what making graphs takes is in ``explain``. ``csv``: its head and its rows."""
    return "TorchDynamo compilation metrics:\n" if repr == "str" else ([], [])


def reset_frame_count() -> None:
    """Nothing: no frames are counted."""
