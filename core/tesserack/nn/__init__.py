"""Neural networks: modules, their functional forms, initialisation and helpers."""

from tesserack.nn import attention, functional, grad, init, modules, parallel, parameter, utils

# Family by family: of an __all__ mypy reads lists that are written out, and none that is made of others'.
from tesserack.nn.modules.activation import *  # noqa: F403
from tesserack.nn.modules.adaptive import *  # noqa: F403
from tesserack.nn.modules.attention import *  # noqa: F403
from tesserack.nn.modules.batchnorm import *  # noqa: F403
from tesserack.nn.modules.container import *  # noqa: F403
from tesserack.nn.modules.conv import *  # noqa: F403
from tesserack.nn.modules.conv_transpose import *  # noqa: F403
from tesserack.nn.modules.distance import *  # noqa: F403
from tesserack.nn.modules.dropout import *  # noqa: F403
from tesserack.nn.modules.flatten import *  # noqa: F403
from tesserack.nn.modules.fold import *  # noqa: F403
from tesserack.nn.modules.instancenorm import *  # noqa: F403
from tesserack.nn.modules.lazy_layers import *  # noqa: F403
from tesserack.nn.modules.linear import *  # noqa: F403
from tesserack.nn.modules.loss import *  # noqa: F403
from tesserack.nn.modules.loss_margin import *  # noqa: F403
from tesserack.nn.modules.loss_pairs import *  # noqa: F403
from tesserack.nn.modules.module import Module
from tesserack.nn.modules.normalization import *  # noqa: F403
from tesserack.nn.modules.padding import *  # noqa: F403
from tesserack.nn.modules.parameters import *  # noqa: F403
from tesserack.nn.modules.pixelshuffle import *  # noqa: F403
from tesserack.nn.modules.pooling import *  # noqa: F403
from tesserack.nn.modules.pooling_more import *  # noqa: F403
from tesserack.nn.modules.rnn import *  # noqa: F403
from tesserack.nn.modules.rnn_cells import *  # noqa: F403
from tesserack.nn.modules.sparse import *  # noqa: F403
from tesserack.nn.modules.transformer import *  # noqa: F403
from tesserack.nn.modules.upsampling import *  # noqa: F403
from tesserack.nn.parallel import DataParallel
from tesserack.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    "Buffer",
    "DataParallel",
    "Module",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "attention",
    "functional",
    "grad",
    "init",
    "modules",
    "parallel",
    "parameter",
    "utils",
]
__all__ += modules.__all__
