"""Metrics of the order of scores."""

from __future__ import annotations

from tesserack import Tensor, cat, searchsorted

__all__ = ["AUROC"]


class AUROC:
    """The area under the ROC curve: how likely a sample of the class scores higher than one that is not of it.

    Exact, by the ranks of all scores (Mann and Whitney, 1947), ties counting half; scores are therefore kept, and
    compared in float32 or wider. For two classes scores have the targets' shape, for more ``(n, num_classes)``: each
    class against the others, the areas averaged alike.

    >>> import tesserack as ts
    >>> auroc = AUROC()
    >>> auroc.update(ts.tensor([0.1, 0.4, 0.35, 0.8]), ts.tensor([0, 0, 1, 1]))
    >>> auroc.compute()
    0.75
    """

    def __init__(self, num_classes: int = 2) -> None:
        if num_classes < 2:
            raise ValueError(f"AUROC: expected at least two classes, got {num_classes}")
        self.num_classes = num_classes
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._scores: list[Tensor] = []
        self._targets: list[Tensor] = []

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Take in a batch. ``ValueError`` for shapes that do not fit, ``TypeError`` for targets that are no classes."""
        wanted = (*targets.shape, *(() if self.num_classes == 2 else (self.num_classes,)))
        if targets.ndim != 1 or tuple(scores.shape) != wanted:
            raise ValueError(
                f"AUROC: expected targets (n,) and scores {'(n,)' if self.num_classes == 2 else '(n, num_classes)'} "
                f"for {self.num_classes} classes, got {tuple(targets.shape)} and {tuple(scores.shape)}"
            )
        if targets.is_floating_point() or not scores.is_floating_point():
            raise TypeError(f"AUROC: expected float scores and integer targets, got {scores.dtype} and {targets.dtype}")
        self._scores.append(scores.detach())
        self._targets.append(targets)

    def compute(self) -> float:
        """From 0 to 1; NaN unless there are samples of every class."""
        if not self._scores:
            return float("nan")
        scores, targets = cat(self._scores), cat(self._targets)
        if self.num_classes == 2:
            return _area(scores, targets == 1)
        areas = [_area(scores[:, k], targets == k) for k in range(self.num_classes)]
        return sum(areas) / len(areas)


def _area(scores: Tensor, positive: Tensor) -> float:
    if scores.itemsize < 4:
        scores = scores.float()
    of, others = scores[positive], scores[~positive]
    if not of.numel() or not others.numel():
        return float("nan")
    ordered = others.sort()[0]
    below = searchsorted(ordered, of).sum()  # others that score less
    not_above = searchsorted(ordered, of, right=True).sum()
    return (int(below) + int(not_above)) / (2 * of.numel() * others.numel())
