"""Schedules that multiply the learning rate by a factor of the epoch."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from tesserack.optim.lr_scheduler._base import LRScheduler
from tesserack.optim.optimizer import Optimizer

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "PolynomialLR",
    "StepLR",
]


class _FactorLR(LRScheduler):
    """``lr(t) = base_lr * factor(t)``, reached step by step as ``lr *= ratio(t)`` so that schedules can be chained."""

    def _factor_at(self, epoch: int) -> float:
        """What multiplies the base rate at ``epoch``."""
        raise NotImplementedError

    def _ratio_at(self, epoch: int) -> float:
        """``factor(epoch) / factor(epoch - 1)``, for epoch > 0."""
        raise NotImplementedError

    def get_lr(self) -> list[float]:
        if self._is_initial and self.last_epoch > 0:  # the groups have the rates of an epoch resumed already
            return self._group_lrs()
        change = self._factor_at(0) if self.last_epoch == 0 else self._ratio_at(self.last_epoch)
        return [rate * change for rate in self._group_lrs()]

    def _get_closed_form_lr(self) -> list[float]:
        factor = self._factor_at(self.last_epoch)
        return [base * factor for base in self.base_lrs]


class _PerGroup(LRScheduler):
    """Keeps one function per parameter group; only callable objects, not functions, go into the state dict."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas: list[Callable[[int], float]] = (
            list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * groups
        )
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"{type(self).__name__}: expected {groups} functions, got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["lr_lambdas"] = [None if isinstance(fn, FunctionType) else dict(fn.__dict__) for fn in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        rest = {key: value for key, value in state_dict.items() if key != "lr_lambdas"}
        super().load_state_dict(rest)
        for function, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if saved is not None:
                function.__dict__.update(saved)


class LambdaLR(_PerGroup):
    """``base_lr * lr_lambda(epoch)``; one function for all groups, or a list with one per group.

    >>> from tesserack import nn, optim, zeros
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=8.0)
    >>> schedule = LambdaLR(opt, lambda epoch: 0.5**epoch)
    >>> opt.step(); schedule.step(); schedule.get_last_lr()
    [4.0]
    """

    def get_lr(self) -> list[float]:
        epoch = self.last_epoch
        return [base * function(epoch) for base, function in zip(self.base_lrs, self.lr_lambdas, strict=True)]


class MultiplicativeLR(_PerGroup):
    """``lr *= lr_lambda(epoch)`` at every step.

    >>> from tesserack import nn, optim, zeros
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=8.0)
    >>> schedule = MultiplicativeLR(opt, lambda epoch: 0.25)
    >>> opt.step(); schedule.step(); schedule.get_last_lr()
    [2.0]
    """

    def get_lr(self) -> list[float]:
        if self._is_initial:
            return self._group_lrs()
        return [rate * fn(self.last_epoch) for rate, fn in zip(self._group_lrs(), self.lr_lambdas, strict=True)]


class StepLR(_FactorLR):
    """``gamma`` once more every ``step_size`` epochs.

    >>> from tesserack import nn, optim, zeros
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=8.0)
    >>> schedule = StepLR(opt, step_size=2, gamma=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     opt.step(); schedule.step()
    >>> rates
    [8.0, 8.0, 4.0, 4.0]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor_at(self, epoch: int) -> float:
        return float(self.gamma ** (epoch // self.step_size))

    def _ratio_at(self, epoch: int) -> float:
        return self.gamma if epoch % self.step_size == 0 else 1.0


class MultiStepLR(_FactorLR):
    """``gamma`` once more at each of ``milestones``.

    >>> from tesserack import nn, optim, zeros
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=8.0)
    >>> schedule = MultiStepLR(opt, milestones=[1, 3], gamma=0.5)
    >>> opt.step(); schedule.step(); schedule.get_last_lr()
    [4.0]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor_at(self, epoch: int) -> float:
        return float(self.gamma ** bisect_right(sorted(self.milestones.elements()), epoch))

    def _ratio_at(self, epoch: int) -> float:
        return float(self.gamma ** self.milestones[epoch])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.milestones = Counter(self.milestones)  # a plain dict in a file


class ExponentialLR(_FactorLR):
    """``gamma`` once more every epoch.

    >>> from tesserack import nn, optim, zeros
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=8.0)
    >>> schedule = ExponentialLR(opt, gamma=0.5)
    >>> opt.step(); schedule.step(); schedule.get_last_lr()
    [4.0]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor_at(self, epoch: int) -> float:
        return float(self.gamma**epoch)

    def _ratio_at(self, epoch: int) -> float:
        return self.gamma


class ConstantLR(_FactorLR):
    """``factor`` for the first ``total_iters`` epochs, then 1.

    >>> from tesserack import nn, optim, zeros
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=8.0)
    >>> ConstantLR(opt, factor=0.25, total_iters=2).get_last_lr()
    [2.0]
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 < factor <= 1:
            raise ValueError(f"ConstantLR: expected 0 < factor <= 1, got {factor}")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:  # even where there is no epoch to end it
            return [rate * self.factor for rate in self._group_lrs()]
        return super().get_lr()

    def _factor_at(self, epoch: int) -> float:
        return self.factor if epoch < self.total_iters else 1.0

    def _ratio_at(self, epoch: int) -> float:
        return 1.0 / self.factor if epoch == self.total_iters else 1.0


class LinearLR(_FactorLR):
    """From ``start_factor`` to ``end_factor`` in a straight line over ``total_iters`` epochs: a warm-up.

    >>> from tesserack import nn, optim, zeros
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=8.0)
    >>> schedule = LinearLR(opt, start_factor=0.5, total_iters=2)
    >>> opt.step(); schedule.step(); schedule.get_last_lr()
    [6.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise ValueError(f"LinearLR: expected 0 < start_factor <= 1, got {start_factor}")
        if not 0 <= end_factor <= 1:
            raise ValueError(f"LinearLR: expected 0 <= end_factor <= 1, got {end_factor}")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor_at(self, epoch: int) -> float:
        done = min(epoch, self.total_iters) / self.total_iters if epoch else 0.0
        return self.start_factor + (self.end_factor - self.start_factor) * done

    def _ratio_at(self, epoch: int) -> float:
        if epoch > self.total_iters:
            return 1.0
        rise = self.end_factor - self.start_factor  # as PyTorch rounds it
        return 1.0 + rise / (self.total_iters * self.start_factor + (epoch - 1) * rise)


class PolynomialLR(_FactorLR):
    """``(1 - epoch / total_iters) ** power``, zero after that.

    >>> from tesserack import nn, optim, zeros
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=8.0)
    >>> schedule = PolynomialLR(opt, total_iters=4)
    >>> opt.step(); schedule.step(); schedule.get_last_lr()
    [6.0]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _factor_at(self, epoch: int) -> float:
        done = min(self.total_iters, epoch) / self.total_iters if epoch else 0.0
        return float((1.0 - done) ** self.power)

    def _ratio_at(self, epoch: int) -> float:
        return 1.0 if epoch > self.total_iters else self._factor_at(epoch) / self._factor_at(epoch - 1)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the base rate down to ``eta_min`` over ``T_max`` epochs (arXiv:1608.03983, no restarts).

    After ``T_max`` the rate rises again along the same curve.

    >>> from tesserack import nn, optim, zeros
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=8.0)
    >>> schedule = CosineAnnealingLR(opt, T_max=2)
    >>> opt.step(); schedule.step(); [round(rate, 6) for rate in schedule.get_last_lr()]
    [4.0]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def _height(self, epoch: int) -> float:
        """0 at the bottom of the curve, 1 at the top."""
        return (1 + math.cos(math.pi * epoch / self.T_max)) / 2

    def get_lr(self) -> list[float]:
        epoch, rates = self.last_epoch, self._group_lrs()
        if epoch == 0 or self._is_initial:
            return rates
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # coming up from the bottom, where a ratio is 0 / 0
            return [
                rate + (base - self.eta_min) * self._height(self.T_max + 1)
                for rate, base in zip(rates, self.base_lrs, strict=True)
            ]
        ratio = self._height(epoch) / self._height(epoch - 1)
        return [self.eta_min + ratio * (rate - self.eta_min) for rate in rates]

    def _get_closed_form_lr(self) -> list[float]:
        height = self._height(self.last_epoch)
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]
