"""Puts into the operators' tables what autocast does with each. The choices stand at the declarations, as words
``autocast:lower`` or ``autocast:float32/widest``, of memory that is the host's or not: ``ops/common/facts.h``.
"""

from __future__ import annotations

from tesserack import _native
from tesserack.ops.registry import facts

__all__ = ["install"]

# As native code numbers them.
_POLICIES = ("-", "lower", "float32", "widest", "first", "exempt")
_installed = False


def install() -> None:
    """Once, when the first region is entered."""
    global _installed
    if _installed:
        return
    _installed = True
    for name, words in facts().items():
        for word in words:
            kind, _, policies = word.partition(":")
            if kind == "autocast":
                host, _, device = policies.partition("/")
                _native._set_autocast_policy(name, *map(_POLICIES.index, (host, device or host)))
