"""``torch._ops``: operators by their schema names, ``torch.ops.aten.add.Tensor``."""

from __future__ import annotations

from tesserack.aten.higher_order import HigherOrderOperator
from tesserack.aten.operators import OpOverload, OpOverloadPacket, _OpNamespace
from tesserack.compat.shims import ops

__all__ = ["HigherOrderOperator", "OpOverload", "OpOverloadPacket", "_OpNamespace", "ops"]
