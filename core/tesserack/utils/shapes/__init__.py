"""Shapes that are checked: annotations of tensors, held against every call, and models tried without data.

:func:`check_shapes` (also ``tesserack.check_shapes``) checks functions, modules and packages; :func:`try_shapes` is
what ``tesserack check`` runs. Annotations are ``jaxtyping``'s, or those of here, which are written alike.
"""

from typing import TYPE_CHECKING

from tesserack.utils.shapes._binding import ShapeError
from tesserack.utils.shapes._check import PackageChecks, check_shapes
from tesserack.utils.shapes._switch import are_shape_checks_enabled, set_shape_checks_enabled
from tesserack.utils.shapes._types import Bool, Complex, Float, Inexact, Int, Integer, Num, Real, Shaped, UInt

if TYPE_CHECKING:
    from tesserack.utils.shapes._report import ShapeReport, try_shapes

__all__ = [
    "Bool",
    "Complex",
    "Float",
    "Inexact",
    "Int",
    "Integer",
    "Num",
    "PackageChecks",
    "Real",
    "ShapeError",
    "ShapeReport",
    "Shaped",
    "UInt",
    "are_shape_checks_enabled",
    "check_shapes",
    "set_shape_checks_enabled",
    "try_shapes",
]


def __getattr__(name: str) -> object:
    # Trials need modules and counters; what only decorates does not.
    if name in ("ShapeReport", "try_shapes"):
        from tesserack.utils.shapes import _report

        return getattr(_report, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
