"""Choosing among the ways to compute ``scaled_dot_product_attention``."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator

__all__ = ["WARN_FOR_UNFUSED_KERNELS", "SDPBackend", "sdpa_kernel"]

# Accepted for programs that set it; no kernel is chosen by a program, so there is nothing to warn of.
WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.Enum):
    """The ways PyTorch knows; see :func:`sdpa_kernel` for what they mean here.

    >>> SDPBackend.MATH.name
    'MATH'
    """

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_USUAL = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.OVERRIDEABLE,
)
_enabled: tuple[SDPBackend, ...] = _USUAL


@contextlib.contextmanager
def sdpa_kernel(backends: SDPBackend | Iterable[SDPBackend], set_priority: bool = False) -> Iterator[None]:
    """Within the block only these ways may compute attention, the first one first with ``set_priority``.

    All ways give the same values, and the device's own kernel serves each of them, so the choice is checked and kept
    but
    changes no result. Raises ``AssertionError`` for anything but members of :class:`SDPBackend`.

    >>> with sdpa_kernel(SDPBackend.MATH):
    ...     pass
    """
    global _enabled
    chosen = (backends,) if isinstance(backends, SDPBackend) else tuple(dict.fromkeys(backends))
    for backend in chosen:
        if not isinstance(backend, SDPBackend):
            raise AssertionError(f"sdpa_kernel: expected SDPBackend or a list of them, got {backend!r}")
    before, _enabled = _enabled, chosen
    try:
        yield
    finally:
        _enabled = before


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    """The ways enabled now."""
    return list(_enabled)
