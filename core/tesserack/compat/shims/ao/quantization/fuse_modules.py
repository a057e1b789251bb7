"""``torch.ao.quantization.fuse_modules``."""

from __future__ import annotations

from tesserack.nn.utils.fuse_modules import fuse_known_modules, fuse_modules, fuse_modules_qat

__all__ = ["fuse_known_modules", "fuse_modules", "fuse_modules_qat"]
