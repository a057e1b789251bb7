"""``torch.nn.modules.transformer``: what layers written after PyTorch's own take from it."""

from __future__ import annotations

from tesserack import Tensor

__all__: list[str] = []


def _get_seq_len(src: Tensor, batch_first: bool) -> int | None:
    """The length of a sequence, None for nested tensors."""
    if src.is_nested:
        return None
    return src.shape[0] if src.ndim == 2 or not batch_first else src.shape[1]
