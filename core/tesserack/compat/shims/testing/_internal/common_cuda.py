"""What CUDA devices there are, for tests that ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack.compat.shims._card import Card

__all__ = ["TEST_CUDA", "TEST_CUDNN", "TEST_MULTIGPU", "tf32_off", "tf32_on", "tf32_on_and_off", "with_tf32_off"]

TEST_CUDA = Card("cuda").is_available()
TEST_MULTIGPU = TEST_CUDA and Card("cuda").device_count() > 1
TEST_CUDNN = False
CUDA_DEVICE = ts.device("cuda:0") if TEST_CUDA else None
SM53OrLater = SM60OrLater = SM70OrLater = SM75OrLater = SM80OrLater = SM89OrLater = SM90OrLater = TEST_CUDA
PLATFORM_SUPPORTS_FLASH_ATTENTION = PLATFORM_SUPPORTS_MEM_EFF_ATTENTION = PLATFORM_SUPPORTS_CUDNN_ATTENTION = False
PLATFORM_SUPPORTS_FUSED_ATTENTION = False


def tf32_is_not_fp32() -> bool:
    """False: products of float32 are of float32 here."""
    return False


def tf32_on_and_off(tf32_precision: float = 1e-5, **options: Any) -> Callable[[Any], Any]:
    """The test as it is."""
    return lambda test: test


def with_tf32_off(f: Any) -> Any:
    """The test as it is."""
    return f


def tf32_on(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """The test as it is."""
    return lambda test: test


tf32_off = tf32_on
