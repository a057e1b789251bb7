"""``repr`` of sparse tensors, in PyTorch's format."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor, _native
from tesserack.sparse._parts import COLUMNS, COO, parts_of

__all__ = ["describe"]


def describe(tensor: Tensor, indent: int, contents: Any, usual_dtype: bool) -> tuple[str, list[str]]:
    """The parts as text, and what follows them; ``contents(tensor, indent)`` is the text of a dense one."""
    parts = parts_of(tensor)
    if parts.layout is COO:
        names: tuple[str, ...] = ("indices",)
    else:
        names = ("ccol_indices", "row_indices") if parts.layout in COLUMNS else ("crow_indices", "col_indices")
    shown = []
    for name, part in zip((*names, "values"), (*parts.indices, parts.values), strict=True):
        prefix = f"{name}=tensor("
        text = contents(part, indent + len(prefix))
        if part.numel() == 0:
            text += f", size={tuple(part.shape)}"
        if name != "values" and part.dtype is not _native.int64:
            text += f", dtype={part.dtype}"
        shown.append(prefix + text + ")")
    text = (",\n" + " " * indent).join(shown)
    size = f"size={tuple(tensor.shape)}"
    suffixes = [f"nnz={parts.indices[-1].shape[-1]}"]
    if tensor.device.type != "cpu":
        suffixes.insert(0, f"device='{tensor.device}'")
    if not usual_dtype:
        suffixes.append(f"dtype={tensor.dtype}")
    suffixes.append(f"layout={tensor.layout}")
    if parts.layout is COO:
        return text + ",\n" + " " * indent + size, suffixes
    return text, [size, *suffixes]
