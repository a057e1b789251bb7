"""Control flow by tensors: ``cond``, ``while_loop``, ``scan``, ``map``, ``associative_scan``.

Run as they stand, they are the loops and branches that they mean, with gradients by whatever ran. Under a tracer each
is one node, whose functions are graphs of their own; what these functions close over becomes further operands.

A module for each has the function that programs call and the operator below it, which a tracer sees
(``torch.ops.higher_order.cond``): flat lists of tensors and numbers in, flat lists out. ``_flat.py`` goes between
nested structures and those, ``_checks.py`` holds what functions return against what they have to, and ``_trial.py``
runs a function for the outlines of its results alone.
"""

from tesserack._higher_order_ops.associative_scan import associative_scan, associative_scan_op
from tesserack._higher_order_ops.cond import cond, cond_op
from tesserack._higher_order_ops.map import map, map_impl
from tesserack._higher_order_ops.scan import scan, scan_op
from tesserack._higher_order_ops.while_loop import while_loop, while_loop_op

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
