"""Comparing tensors and making them, for tests."""

from tesserack.testing._comparison import assert_allclose, assert_close
from tesserack.testing._creation import make_tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]
