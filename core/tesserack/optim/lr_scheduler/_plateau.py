"""Lowering the learning rate when a metric stops improving."""

from __future__ import annotations

import math
from typing import Any

from tesserack.optim.lr_scheduler._base import LRScheduler, current, set_rate
from tesserack.optim.optimizer import Optimizer

__all__ = ["ReduceLROnPlateau"]


class ReduceLROnPlateau(LRScheduler):
    """``lr *= factor`` once ``metrics`` has not improved for more than ``patience`` steps.

    Better means lower for ``mode="min"``, higher for ``"max"``, by a relative (``threshold_mode="rel"``) or absolute
    (``"abs"``) ``threshold``. ``cooldown`` steps pass after a reduction before counting resumes; ``min_lr`` (one, or
    one per group) and ``eps`` (the smallest change made) bound the reductions.

    >>> from tesserack import nn, optim, zeros
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=8.0)
    >>> schedule = ReduceLROnPlateau(opt, factor=0.5, patience=1)
    >>> for loss in (1.0, 1.0, 1.0):
    ...     opt.step(); schedule.step(loss)
    >>> schedule.get_last_lr()
    [4.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Any = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError(f"ReduceLROnPlateau: expected factor < 1, got {factor}")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"ReduceLROnPlateau: {type(optimizer).__name__} is not an Optimizer")
        groups = len(optimizer.param_groups)
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * groups
        if len(self.min_lrs) != groups:
            raise ValueError(f"ReduceLROnPlateau: expected {groups} values of min_lr, got {len(self.min_lrs)}")
        self.optimizer = optimizer
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.factor, self.patience, self.cooldown, self.eps = factor, patience, cooldown, eps
        self.last_epoch = 0
        self._last_lr = current(optimizer)
        self._init_is_better(mode, threshold, threshold_mode)
        self._reset()

    def _init_is_better(self, mode: str, threshold: float, threshold_mode: str) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"ReduceLROnPlateau: expected mode 'min' or 'max', got {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"ReduceLROnPlateau: expected threshold_mode 'rel' or 'abs', got {threshold_mode!r}")
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.mode_worse = math.inf if mode == "min" else -math.inf

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether a recent reduction still keeps bad steps from counting."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take note of ``metrics`` (a number or a 0-dim tensor), and lower the rates if it is time."""
        metric = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(metric, self.best):
            self.best = metric
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(self.last_epoch)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = current(self.optimizer)

    def _reduce_lr(self, epoch: int) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"ReduceLROnPlateau: expected min_lrs for {len(groups)} parameter groups, got {len(self.min_lrs)}; "
                    "extend min_lrs where a group is added"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, lowest in zip(groups, self.min_lrs, strict=True):
            rate = float(group["lr"])
            new = max(rate * self.factor, lowest)
            if rate - new > self.eps:
                set_rate(group, new)

    def is_better(self, a: float, best: float) -> bool:
        """Whether ``a`` improves on ``best`` by more than the threshold."""
        return self._is_better(a, best)

    def _is_better(self, a: float, best: float) -> bool:
        if self.mode == "min":
            return a < (best * (1 - self.threshold) if self.threshold_mode == "rel" else best - self.threshold)
        return a > (best * (1 + self.threshold) if self.threshold_mode == "rel" else best + self.threshold)
