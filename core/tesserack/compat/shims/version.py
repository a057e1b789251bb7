"""``torch.version``: no card's toolkit stands behind it."""

from __future__ import annotations

from tesserack.compat._version import TORCH as __version__

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "xpu"]

cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
debug = False
git_version = "unknown"
