"""The templates: one function from a call to a plan for every operator that the generator answers, each with its
operator's name above it.
"""

from __future__ import annotations

import importlib
import pkgutil

from tesserack_kernelgen.templates._registry import TAKES, TEMPLATES

__all__ = ["TAKES", "TEMPLATES"]

for _module in sorted(found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_")):
    importlib.import_module(f"{__name__}.{_module}")
