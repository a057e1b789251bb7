"""Optimizers: they read ``param.grad`` and update the parameters in place."""

from tesserack.optim import (
    adadelta,
    adafactor,
    adagrad,
    adam,
    adamax,
    asgd,
    lbfgs,
    lr_scheduler,
    muon,
    nadam,
    rmsprop,
    rprop,
    sgd,
    sparse_adam,
    swa_utils,
)
from tesserack.optim.adadelta import *  # noqa: F403
from tesserack.optim.adafactor import *  # noqa: F403
from tesserack.optim.adagrad import *  # noqa: F403
from tesserack.optim.adam import *  # noqa: F403
from tesserack.optim.adamax import *  # noqa: F403
from tesserack.optim.asgd import *  # noqa: F403
from tesserack.optim.lbfgs import *  # noqa: F403
from tesserack.optim.muon import *  # noqa: F403
from tesserack.optim.nadam import *  # noqa: F403
from tesserack.optim.optimizer import Optimizer
from tesserack.optim.rmsprop import *  # noqa: F403
from tesserack.optim.rprop import *  # noqa: F403
from tesserack.optim.sgd import *  # noqa: F403
from tesserack.optim.sparse_adam import *  # noqa: F403

# Spelt out one by one: type checkers follow only this form.
__all__ = ["Optimizer", "lr_scheduler", "swa_utils"]
__all__ += adadelta.__all__
__all__ += adafactor.__all__
__all__ += adagrad.__all__
__all__ += adam.__all__
__all__ += adamax.__all__
__all__ += asgd.__all__
__all__ += lbfgs.__all__
__all__ += muon.__all__
__all__ += nadam.__all__
__all__ += rmsprop.__all__
__all__ += rprop.__all__
__all__ += sgd.__all__
__all__ += sparse_adam.__all__
