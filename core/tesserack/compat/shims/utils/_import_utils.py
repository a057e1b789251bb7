"""``torch.utils._import_utils``: whether packages are installed."""

from __future__ import annotations

import functools
import importlib.util

__all__ = ["dill_available"]


@functools.lru_cache
def _check_module_exists(name: str) -> bool:
    """Whether a module can be found; it is not imported.

    >>> _check_module_exists("json"), _check_module_exists("no_such_module")
    (True, False)
    """
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def dill_available() -> bool:
    """Whether ``dill`` is installed."""
    return _check_module_exists("dill")
