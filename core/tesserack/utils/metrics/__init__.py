"""Metrics that take batch after batch: nothing is kept of a batch but counts, on the device where it is.

>>> import tesserack as ts
>>> accuracy = ts.metrics.Accuracy()
>>> accuracy.update(ts.tensor([[0.1, 0.9], [0.8, 0.2]]), ts.tensor([1, 1]))
>>> accuracy.update(ts.tensor([[0.3, 0.7], [0.6, 0.4]]), ts.tensor([1, 0]))
>>> accuracy.compute()
0.75
"""

from tesserack.utils.metrics._classification import F1, Accuracy, ConfusionMatrix, Mean, Precision, Recall
from tesserack.utils.metrics._ranking import AUROC

__all__ = ["AUROC", "F1", "Accuracy", "ConfusionMatrix", "Mean", "Precision", "Recall"]
