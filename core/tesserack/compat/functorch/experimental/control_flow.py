"""``functorch.experimental.control_flow``."""

from tesserack.ops.control_flow.cond import cond
from tesserack.ops.control_flow.map import map

__all__ = ["cond", "map"]
