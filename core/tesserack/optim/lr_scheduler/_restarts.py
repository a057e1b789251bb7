"""Cosine annealing that starts over."""

from __future__ import annotations

import math

from tesserack.optim.lr_scheduler._base import LRScheduler
from tesserack.optim.optimizer import Optimizer


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from the base rate down to ``eta_min`` over ``T_0`` epochs, then again, each period ``T_mult``
    times as long as the one before (arXiv:1608.03983).

    ``step(epoch)`` takes parts of epochs, such as ``epoch + batch / batches``. Raises ``ValueError`` unless ``T_0`` and
    ``T_mult`` are positive integers, and for a negative ``epoch``.

    >>> from tesserack import nn, optim, zeros
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=8.0)
    >>> schedule = CosineAnnealingWarmRestarts(opt, T_0=2)
    >>> opt.step(); schedule.step(); [round(rate, 6) for rate in schedule.get_last_lr()]
    [4.0]
    >>> schedule.step(); schedule.get_last_lr()
    [8.0]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"CosineAnnealingWarmRestarts: expected {name} to be a positive integer, got {value}")
        if not isinstance(eta_min, (int, float)):
            raise ValueError(f"CosineAnnealingWarmRestarts: expected eta_min to be a number, got {eta_min!r}")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        if last_epoch >= 0:
            self._place(last_epoch)
        super().__init__(optimizer, last_epoch)

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to ``epoch``, which may lie within one: a part of the batches is behind."""
        self._update_lr(epoch)

    def get_lr(self) -> list[float]:
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def _update_lr(self, epoch: float | None = None) -> None:
        if epoch is None and self.last_epoch >= 0:
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            self._place(0 if epoch is None else epoch)
        super()._update_lr(epoch)  # type: ignore[arg-type]
        self._step_count = 0  # not counted, as in PyTorch

    def _place(self, epoch: float) -> None:
        """Find the period that ``epoch`` falls in, and how far."""
        if epoch < 0:
            raise ValueError(f"CosineAnnealingWarmRestarts: expected a non-negative epoch, got {epoch}")
        if self.T_mult == 1:
            self.T_i, self.T_cur = self.T_0, epoch % self.T_0
            return
        self.T_i, self.T_cur = self.T_0, epoch
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult
