"""Comparing tensors and making them, and checking texts, for tests."""

from tesserack.testing._comparison import assert_allclose, assert_close
from tesserack.testing._creation import make_tensor
from tesserack.testing.file_check import FileCheck

__all__ = ["FileCheck", "assert_allclose", "assert_close", "make_tensor"]
