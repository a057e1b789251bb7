"""``torch.torch_version``."""

from __future__ import annotations

from tesserack.compat._version import TORCH, TorchVersion

__all__ = ["TorchVersion"]

internal_version = TORCH
__version__ = TorchVersion(TORCH)
