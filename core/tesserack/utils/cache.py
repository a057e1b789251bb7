"""Where files that can be made again are kept."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["user_cache"]


def user_cache(*parts: str) -> Path:
    """A folder for Tesserack in the user's cache (the XDG base directory specification); not created here.

    Raises:
        RuntimeError: if the user has no home folder and ``XDG_CACHE_HOME`` is not set.

    >>> user_cache("extensions").parts[-2:]
    ('tesserack', 'extensions')
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "tesserack", *parts)
