"""Control flow by tensors: ``cond``, ``while_loop``, ``scan``, ``map``, ``associative_scan``.

Run as they stand, they are the loops and branches that they mean, with gradients by whatever ran. Under a tracer each
is one node, whose functions are graphs of their own; what these functions close over becomes further operands.

A module for each has the function that programs call and the operator below it, which a tracer sees
(``torch.ops.higher_order.cond``): flat lists of tensors and numbers in, flat lists out. ``_flat.py`` goes between
nested structures and those, ``_checks.py`` holds what functions return against what they have to, and ``_trial.py``
runs a function for the outlines of its results alone.
"""

import sys
from types import ModuleType
from typing import Any

from tesserack.ops.control_flow.associative_scan import associative_scan, associative_scan_op
from tesserack.ops.control_flow.cond import cond, cond_op
from tesserack.ops.control_flow.map import map, map_impl
from tesserack.ops.control_flow.scan import scan, scan_op
from tesserack.ops.control_flow.while_loop import while_loop, while_loop_op

__all__ = [
    "associative_scan",
    "associative_scan_op",
    "cond",
    "cond_op",
    "map",
    "map_impl",
    "scan",
    "scan_op",
    "while_loop",
    "while_loop_op",
]


class _Functions(ModuleType):
    """Shows functions, not the modules of the same names, whichever of their names those are imported by."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in __all__):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Functions
