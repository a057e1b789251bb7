"""What ``importlib.metadata`` finds for ``torch``."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from tesserack.compat._version import TORCH

__all__ = ["Torch"]


class Torch(importlib.metadata.Distribution):
    """A distribution with a name and a version, and no files."""

    def read_text(self, filename: str) -> str | None:
        return f"Metadata-Version: 2.1\nName: torch\nVersion: {TORCH}\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(path)
