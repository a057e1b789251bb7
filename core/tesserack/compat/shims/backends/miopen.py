"""``torch.backends.miopen``: AMD's library is not used."""

from __future__ import annotations

__all__ = ["immediate"]

immediate = False
