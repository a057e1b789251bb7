"""``torch.testing._comparison``."""

from __future__ import annotations

from tesserack.testing import assert_allclose, assert_close, pairs
from tesserack.testing.pairs import *  # noqa: F403

__all__ = ["assert_allclose", "assert_close", *pairs.__all__]
