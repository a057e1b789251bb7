"""The one-cycle policy."""

from __future__ import annotations

import math
from typing import Any

from tesserack.optim.lr_scheduler._base import LRScheduler, apart
from tesserack.optim.optimizer import Optimizer

__all__ = ["OneCycleLR"]


# A stretch of steps over which rate and momentum go from one group entry to another, as PyTorch's files have it.
_Phase = dict[str, Any]


def _phase(end: float, rates: tuple[str, str], momenta: tuple[str, str]) -> _Phase:
    names = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
    return dict(zip(names, (end, *rates, *momenta), strict=True))


class OneCycleLR(LRScheduler):
    """Up to ``max_lr``, then far down, once over the whole training (Smith and Topin, arXiv:1708.07120).

    The length is ``total_steps``, or ``epochs * steps_per_epoch``; step after every batch. The rate starts at
    ``max_lr / div_factor``, peaks after the fraction ``pct_start``, and ends at the start divided by
    ``final_div_factor``; ``three_phase`` inserts a symmetric descent first. ``anneal_strategy`` is "cos" or "linear".
    With ``cycle_momentum`` momentum (or beta1) moves the other way, between ``max_momentum`` and ``base_momentum``.

    >>> from tesserack import nn, optim, zeros
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=1.0, momentum=0.9)
    >>> schedule = OneCycleLR(opt, max_lr=1.0, total_steps=10)
    >>> round(schedule.get_last_lr()[0], 4)
    0.04
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"OneCycleLR: {type(optimizer).__name__} is not an Optimizer")
        self.total_steps = _length(total_steps, epochs, steps_per_epoch)
        if not (isinstance(pct_start, float) and 0 <= pct_start <= 1):
            raise ValueError(f"OneCycleLR: expected a float pct_start between 0 and 1, got {pct_start!r}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"OneCycleLR: expected anneal_strategy 'cos' or 'linear', got {anneal_strategy!r}")
        self.optimizer = optimizer
        self._anneal_func_type = anneal_strategy
        self.cycle_momentum = cycle_momentum
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        peaks = self._per_group("max_lr", max_lr)
        if last_epoch == -1:
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["initial_lr"] = peak / div_factor
                group["max_lr"] = peak
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            self._start_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _per_group(self, name: str, value: Any) -> list[float]:
        groups = len(self.optimizer.param_groups)
        values = list(value) if isinstance(value, (list, tuple)) else [value] * groups
        if len(values) != groups:
            raise ValueError(f"OneCycleLR: expected {groups} values of {name}, got {len(values)}")
        return [apart(each) for each in values]

    def _start_momentum(self, base_momentum: Any, max_momentum: Any, last_epoch: int) -> None:
        if not {"momentum", "betas"} & self.optimizer.defaults.keys():
            raise ValueError("OneCycleLR: cycle_momentum=True needs an optimizer with momentum or betas")
        self.use_beta1 = "betas" in self.optimizer.defaults
        if last_epoch != -1:
            return
        lows = self._per_group("base_momentum", base_momentum)
        highs = self._per_group("max_momentum", max_momentum)
        for group, low, high in zip(self.optimizer.param_groups, lows, highs, strict=True):
            self._set_momentum(group, high)
            group["max_momentum"], group["base_momentum"] = high, low

    @staticmethod
    def _set_momentum(group: dict[str, Any], value: float) -> None:
        if "betas" in group:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value

    def get_lr(self) -> list[float]:
        if self.last_epoch > self.total_steps:
            raise ValueError(f"OneCycleLR: step {self.last_epoch} is past the {self.total_steps} steps of the cycle")
        return [self._rate(group) for group in self.optimizer.param_groups]

    def _anneal_func(self, start: float, end: float, pct: float) -> float:
        anneal = self._annealing_cos if self._anneal_func_type == "cos" else self._annealing_linear
        return anneal(start, end, pct)

    @staticmethod
    def _annealing_cos(start: float, end: float, pct: float) -> float:
        return end + (start - end) / 2.0 * (1 + math.cos(math.pi * pct))

    @staticmethod
    def _annealing_linear(start: float, end: float, pct: float) -> float:
        return (end - start) * pct + start

    def _rate(self, group: dict[str, Any]) -> float:
        """The rate of one group; sets its momentum as well."""
        begin = 0.0
        for phase in self._schedule_phases:
            if self.last_epoch <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            begin = phase["end_step"]
        done = (self.last_epoch - begin) / (phase["end_step"] - begin) if phase["end_step"] != begin else 1.0
        if self.cycle_momentum:
            self._set_momentum(
                group, self._anneal_func(group[phase["start_momentum"]], group[phase["end_momentum"]], done)
            )
        return self._anneal_func(group[phase["start_lr"]], group[phase["end_lr"]], done)


def _length(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    if total_steps is None:
        if epochs is None or steps_per_epoch is None:
            raise ValueError("OneCycleLR: give total_steps, or both epochs and steps_per_epoch")
        total_steps = epochs * steps_per_epoch if min(epochs, steps_per_epoch) > 0 else 0
    if not isinstance(total_steps, int) or total_steps <= 0:
        raise ValueError(f"OneCycleLR: expected a positive whole number of steps, got {total_steps!r}")
    return total_steps


def _phases(total_steps: int, pct_start: float, three_phase: bool) -> list[_Phase]:
    up, down = ("initial_lr", "max_lr"), ("max_momentum", "base_momentum")
    peak = pct_start * total_steps - 1
    last = total_steps - 1
    if three_phase:
        return [
            _phase(peak, up, down),
            _phase(2 * pct_start * total_steps - 2, up[::-1], down[::-1]),
            _phase(last, ("initial_lr", "min_lr"), ("max_momentum", "max_momentum")),
        ]
    return [_phase(peak, up, down), _phase(last, ("max_lr", "min_lr"), down[::-1])]
