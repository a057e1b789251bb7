"""Schedules made of schedules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from tesserack.optim.lr_scheduler._base import LRScheduler, current, set_rate
from tesserack.optim.lr_scheduler._plateau import ReduceLROnPlateau
from tesserack.optim.optimizer import Optimizer

__all__ = ["ChainedScheduler", "SequentialLR"]


def _check(name: str, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None) -> Optimizer:
    if not schedulers:
        raise ValueError(f"{name}: expected at least one scheduler, got none")
    optimizer = schedulers[0].optimizer if optimizer is None else optimizer
    for i, scheduler in enumerate(schedulers):
        if name == "ChainedScheduler" and isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(
                f"{name}: does not take ReduceLROnPlateau, whose step() needs metrics, got one at index {i}"
            )
        if scheduler.optimizer is not optimizer:
            raise ValueError(f"{name}: all schedulers must act on one optimizer, number {i} has another")
    return optimizer


class _Combined(LRScheduler):
    """Holds schedulers; saves their states with its own."""

    _schedulers: list[LRScheduler]

    def state_dict(self) -> dict[str, Any]:
        state = {key: value for key, value in self.__dict__.items() if key not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        rest = {key: value for key, value in state_dict.items() if key != "_schedulers"}
        self.__dict__.update(rest)
        for scheduler, saved in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(saved)


class SequentialLR(_Combined):
    """One schedule after the other: the next takes over at each of ``milestones``, starting from its epoch 0.

    >>> from tesserack import nn, optim, zeros
    >>> from tesserack.optim.lr_scheduler import ConstantLR, ExponentialLR
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=8.0)
    >>> warm, fall = ConstantLR(opt, factor=0.5, total_iters=2), ExponentialLR(opt, gamma=0.5)
    >>> schedule = SequentialLR(opt, [warm, fall], milestones=[2])
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     opt.step(); schedule.step()
    >>> rates
    [4.0, 4.0, 8.0, 4.0]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        _check("SequentialLR", schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"SequentialLR: expected {len(schedulers) - 1} milestones for {len(schedulers)} schedulers, "
                f"got {len(milestones)}"
            )
        self.optimizer = optimizer
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        self.last_epoch = 0
        # Every scheduler took its first step when it was made: undo that, then start the first one alone.
        for group in optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        _undo(self._schedulers)
        self._schedulers[0]._initial_step()
        self._last_lr = self._schedulers[0].get_last_lr()
        for _ in range(last_epoch + 1):  # resumed: through all that lies before
            self._take(lambda scheduler: scheduler._advance(None))

    def step(self, epoch: int | None = None) -> None:
        """Step the schedule whose turn it is."""
        if epoch is not None:
            raise ValueError("SequentialLR.step: takes no epoch")
        self._take(lambda scheduler: scheduler.step())

    def _take(self, step: Callable[[LRScheduler], None]) -> None:
        self.last_epoch += 1
        turn = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[turn]
        if turn > 0 and self._milestones[turn - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            step(scheduler)
        self._last_lr = scheduler.get_last_lr()


def _undo(schedulers: Sequence[LRScheduler]) -> None:
    """Take back the first step of each, and of those that they consist of."""
    for scheduler in schedulers:
        if isinstance(scheduler, _Combined):
            _undo(scheduler._schedulers)
        else:
            scheduler.last_epoch -= 1


class ChainedScheduler(_Combined):
    """Several schedules at once: every step steps them all.

    >>> from tesserack import nn, optim, zeros
    >>> from tesserack.optim.lr_scheduler import ConstantLR, ExponentialLR
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=8.0)
    >>> both = ChainedScheduler([ConstantLR(opt, factor=0.5, total_iters=2), ExponentialLR(opt, gamma=0.5)])
    >>> opt.step(); both.step(); both.get_last_lr()
    [2.0]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        self.optimizer = _check("ChainedScheduler", schedulers, optimizer)
        self._schedulers = list(schedulers)
        self._last_lr = current(self.optimizer)

    def _initial_step(self) -> None:
        for scheduler in self._schedulers:
            scheduler._initial_step()
        self._last_lr = current(self.optimizer)

    def step(self, epoch: int | None = None) -> None:
        """Step every schedule."""
        if epoch is not None:
            raise ValueError("ChainedScheduler.step: takes no epoch")
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = current(self.optimizer)
