"""Metrics made of counts: how often each class was taken for each other."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor, bincount

__all__ = ["F1", "Accuracy", "ConfusionMatrix", "Mean", "Precision", "Recall"]

_AVERAGES = ("binary", "micro", "macro", "weighted", None)


def as_classes(name: str, predictions: Tensor, targets: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Both as flat int64 classes. ``(n, classes, ...)`` scores are maximised over; floats of the targets' shape are
    probabilities of class 1."""
    if targets.is_floating_point() or targets.is_complex():
        raise TypeError(f"{name}: expected targets of an integer dtype or bool, got {targets.dtype}")
    if predictions.ndim == targets.ndim + 1 and predictions.shape[:1] + predictions.shape[2:] == targets.shape:
        predictions = predictions.argmax(1)
    elif predictions.shape != targets.shape:
        raise ValueError(
            f"{name}: expected predictions like the targets {tuple(targets.shape)}, or with classes in dim 1, "
            f"got {tuple(predictions.shape)}"
        )
    elif predictions.is_floating_point():
        predictions = predictions >= threshold
    return predictions.reshape(-1).long(), targets.reshape(-1).long()


class Mean:
    """The mean of numbers, such as losses; each may stand for several samples.

    >>> mean = Mean()
    >>> mean.update(2.0, 3)
    >>> mean.update(4.0, 1)
    >>> mean.compute()
    2.5
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.total: Any = 0.0
        self.weight = 0.0

    def update(self, value: Tensor | float, weight: float = 1) -> None:
        """Take in a number, or a tensor of one element, which is not waited for."""
        if isinstance(value, Tensor):
            if value.numel() != 1:
                raise ValueError(f"Mean: expected a number or a tensor of one element, got shape {tuple(value.shape)}")
            value = value.detach().reshape(())
        self.total = self.total + value * weight
        self.weight += weight

    def compute(self) -> float:
        """The mean so far; NaN of nothing."""
        return float(self.total) / self.weight if self.weight else float("nan")


class ConfusionMatrix:
    """How often a sample of class i was taken for class j: element ``[i, j]``, as scikit-learn counts.

    Predictions are classes, scores ``(n, classes, ...)``, or for two classes probabilities of the targets' shape, of
    which ``threshold`` and more mean class 1. Targets are integers.

    >>> import tesserack as ts
    >>> matrix = ConfusionMatrix(2)
    >>> matrix.update(ts.tensor([0, 1, 1, 0]), ts.tensor([0, 1, 0, 0]))
    >>> matrix.compute()
    tensor([[2, 1],
            [0, 1]])
    """

    def __init__(self, num_classes: int, threshold: float = 0.5) -> None:
        if num_classes < 1:
            raise ValueError(f"ConfusionMatrix: expected at least one class, got {num_classes}")
        self.num_classes, self.threshold = num_classes, threshold
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._counts: Tensor | None = None

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Take in a batch. ``ValueError`` for shapes that do not fit and classes out of range."""
        name, n = type(self).__name__, self.num_classes
        predicted, wanted = as_classes(name, predictions.detach(), targets, self.threshold)
        if not predicted.numel():
            return
        # One wait for both checks: a class too many would be counted as another.
        highest, lowest = predicted.maximum(wanted).max(), predicted.minimum(wanted).min()
        if int(highest) >= n or int(lowest) < 0:
            raise ValueError(
                f"{name}: expected classes from 0 to {n - 1}, got {int(lowest)} to {int(highest)}; set num_classes"
            )
        counts = bincount(wanted * n + predicted, minlength=n * n)
        self._counts = counts if self._counts is None else self._counts + counts

    def compute(self) -> Tensor:
        """An int64 matrix ``(num_classes, num_classes)``, zeros where nothing was taken in."""
        if self._counts is None:
            return bincount(Tensor([]).long(), minlength=self.num_classes**2).reshape(self.num_classes, -1)
        return self._counts.reshape(self.num_classes, self.num_classes)


class Accuracy:
    """The share of predictions that are right. Takes what :class:`ConfusionMatrix` takes, in any number of classes."""

    def __init__(self, threshold: float = 0.5) -> None:
        self.threshold = threshold
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._right: Any = 0
        self._count = 0

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Take in a batch, without waiting for the device."""
        predicted, wanted = as_classes("Accuracy", predictions.detach(), targets, self.threshold)
        self._right = self._right + (predicted == wanted).sum()
        self._count += wanted.numel()

    def compute(self) -> float:
        """From 0 to 1; NaN of nothing."""
        return int(self._right) / self._count if self._count else float("nan")


class _OfCounts(ConfusionMatrix):
    """A score of each class, averaged: ``"macro"`` alike, ``"weighted"`` by the number of samples, ``"micro"`` over all
    counts, ``"binary"`` that of class 1 alone, None not at all. 0 where a class has nothing to divide by."""

    def __init__(self, num_classes: int = 2, average: str | None = "", threshold: float = 0.5) -> None:
        average = ("binary" if num_classes == 2 else "macro") if average == "" else average
        if average not in _AVERAGES:
            allowed = ", ".join(map(repr, _AVERAGES))
            raise ValueError(f"{type(self).__name__}: expected average among {allowed}, got {average!r}")
        if average == "binary" and num_classes != 2:
            raise ValueError(f'{type(self).__name__}: average="binary" is for 2 classes, got {num_classes}')
        super().__init__(num_classes, threshold)
        self.average = average

    def _of(self, hits: Tensor, predicted: Tensor, wanted: Tensor) -> Tensor:
        raise NotImplementedError

    def compute(self) -> Any:
        """A number, or with ``average=None`` a float64 tensor ``(num_classes,)``."""
        counts = super().compute().cpu().double()
        hits, predicted, wanted = counts.diagonal(), counts.sum(0), counts.sum(1)
        if self.average == "micro":
            return float(self._of(hits.sum(), predicted.sum(), wanted.sum()))
        each = self._of(hits, predicted, wanted)
        if self.average is None:
            return each
        if self.average == "binary":
            return float(each[1])
        if self.average == "weighted":
            return float((each * wanted).sum() / wanted.sum().clamp(min=1))
        seen = (predicted + wanted) > 0  # classes that occur nowhere say nothing
        return float(each[seen].mean()) if bool(seen.any()) else 0.0


class Precision(_OfCounts):
    """Of what was taken for a class, the share that is of it.

    >>> import tesserack as ts
    >>> precision = Precision()
    >>> precision.update(ts.tensor([1, 1, 0, 1]), ts.tensor([1, 0, 0, 1]))
    >>> round(precision.compute(), 3)
    0.667
    """

    def _of(self, hits: Tensor, predicted: Tensor, wanted: Tensor) -> Tensor:
        return hits / predicted.clamp(min=1)


class Recall(_OfCounts):
    """Of the samples of a class, the share that was found.

    >>> import tesserack as ts
    >>> recall = Recall()
    >>> recall.update(ts.tensor([1, 0, 0]), ts.tensor([1, 1, 0]))
    >>> recall.compute()
    0.5
    """

    def _of(self, hits: Tensor, predicted: Tensor, wanted: Tensor) -> Tensor:
        return hits / wanted.clamp(min=1)


class F1(_OfCounts):
    """The harmonic mean of precision and recall.

    >>> import tesserack as ts
    >>> f1 = F1()
    >>> f1.update(ts.tensor([1, 0, 1, 1]), ts.tensor([1, 1, 0, 1]))
    >>> round(f1.compute(), 3)
    0.667
    """

    def _of(self, hits: Tensor, predicted: Tensor, wanted: Tensor) -> Tensor:
        return 2 * hits / (predicted + wanted).clamp(min=1)
