"""Optimizers: they read ``param.grad`` and update the parameters in place."""

from tesserack.optim import lr_scheduler
from tesserack.optim.adam import Adam, AdamW
from tesserack.optim.optimizer import Optimizer
from tesserack.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]
