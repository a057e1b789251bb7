"""The layers. Each family has a file named after it."""

from tesserack.nn.modules import (
    activation,
    adaptive,
    attention,
    batchnorm,
    container,
    conv,
    conv_transpose,
    distance,
    dropout,
    flatten,
    fold,
    instancenorm,
    lazy_layers,
    linear,
    loss,
    loss_margin,
    loss_pairs,
    normalization,
    padding,
    parameters,
    pixelshuffle,
    pooling,
    pooling_more,
    rnn,
    rnn_cells,
    sparse,
    transformer,
    upsampling,
)
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

# Spelt out one by one: type checkers follow only this form.
__all__ = ["Module"]
__all__ += activation.__all__
__all__ += adaptive.__all__
__all__ += attention.__all__
__all__ += batchnorm.__all__
__all__ += container.__all__
__all__ += conv.__all__
__all__ += conv_transpose.__all__
__all__ += distance.__all__
__all__ += dropout.__all__
__all__ += flatten.__all__
__all__ += fold.__all__
__all__ += instancenorm.__all__
__all__ += lazy_layers.__all__
__all__ += linear.__all__
__all__ += loss.__all__
__all__ += loss_margin.__all__
__all__ += loss_pairs.__all__
__all__ += normalization.__all__
__all__ += padding.__all__
__all__ += parameters.__all__
__all__ += pixelshuffle.__all__
__all__ += pooling.__all__
__all__ += pooling_more.__all__
__all__ += rnn.__all__
__all__ += rnn_cells.__all__
__all__ += sparse.__all__
__all__ += transformer.__all__
__all__ += upsampling.__all__
