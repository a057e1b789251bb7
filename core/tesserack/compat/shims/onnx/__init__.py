"""``torch.onnx``: what models ask of it while they run. Exporting is not among it."""

from __future__ import annotations

from typing import Any

__all__ = ["is_in_onnx_export", "register_custom_op_symbolic", "unregister_custom_op_symbolic"]


def is_in_onnx_export() -> bool:
    """False: nothing is exported."""
    return False


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Kept for packages that call it when they are imported."""


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Kept for packages that call it."""
