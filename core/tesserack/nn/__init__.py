"""Neural networks: modules, their functional forms, initialisation and helpers."""

from tesserack.nn import functional, init, modules, utils
from tesserack.nn.modules import *  # noqa: F403
from tesserack.nn.parameter import Buffer, Parameter

__all__ = ["Buffer", "Parameter", "functional", "init", "modules", "utils"]
__all__ += modules.__all__
