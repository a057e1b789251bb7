"""``torch.__config__``: how the program was built."""

from __future__ import annotations

import tesserack

__all__ = ["parallel_info", "show"]


def show() -> str:
    """The version, as text."""
    return f"Tesserack {tesserack.__version__}; `tesserack doctor` says more\n"


def parallel_info() -> str:
    """How many threads kernels use, as text."""
    return f"threads of kernels: {tesserack.get_num_threads()}\n"
