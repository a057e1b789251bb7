"""Neural networks: modules, their functional forms, initialisation and helpers."""

from tesserack.nn import attention, functional, init, modules, parallel, parameter, utils
from tesserack.nn.modules import *  # noqa: F403
from tesserack.nn.parallel import DataParallel
from tesserack.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    "Buffer",
    "DataParallel",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "attention",
    "functional",
    "init",
    "modules",
    "parallel",
    "parameter",
    "utils",
]
__all__ += modules.__all__
