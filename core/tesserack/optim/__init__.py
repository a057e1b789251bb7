"""Optimizers: they read ``param.grad`` and update the parameters in place."""

from tesserack.optim import lr_scheduler, swa_utils
from tesserack.optim.adadelta import Adadelta
from tesserack.optim.adafactor import Adafactor
from tesserack.optim.adagrad import Adagrad
from tesserack.optim.adam import Adam, AdamW
from tesserack.optim.adamax import Adamax
from tesserack.optim.asgd import ASGD
from tesserack.optim.lbfgs import LBFGS
from tesserack.optim.muon import Muon
from tesserack.optim.nadam import NAdam, RAdam
from tesserack.optim.optimizer import Optimizer
from tesserack.optim.rmsprop import RMSprop
from tesserack.optim.rprop import Rprop
from tesserack.optim.sgd import SGD
from tesserack.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
]
