"""Rates that go up and down, and the one of weight averaging."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tesserack.optim.lr_scheduler._base import LRScheduler, apart, set_rate
from tesserack.optim.optimizer import Optimizer

__all__ = ["SWALR", "CyclicLR"]


def _per_group(name: str, optimizer: Optimizer, value: Any) -> list[float]:
    groups = len(optimizer.param_groups)
    values = list(value) if isinstance(value, (list, tuple)) else [value] * groups
    if len(values) != groups:
        raise ValueError(f"{name} must have the same length as optimizer.param_groups: expected {groups}, "
                         f"got {len(values)}")  # fmt: skip
    return [apart(each) for each in values]


class CyclicLR(LRScheduler):
    """Between ``base_lr`` and ``max_lr`` and back, over and over (Smith, arXiv:1506.01186); step after every batch.

    ``step_size_up`` steps up and ``step_size_down`` (as many if None) down. ``mode`` "triangular2" halves the height
    each
    cycle, "exp_range" multiplies it by ``gamma`` each step; ``scale_fn`` does so by the "cycle" or the "iterations" of
    ``scale_mode``. With ``cycle_momentum`` momentum (or beta1) moves the other way, between ``max_momentum`` and
    ``base_momentum``. Raises ``ValueError`` for another mode and for an optimizer without momentum.

    >>> from tesserack import nn, optim, zeros
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=1.0, momentum=0.9)
    >>> schedule = CyclicLR(opt, base_lr=1.0, max_lr=2.0, step_size_up=2)
    >>> opt.step(); schedule.step(); schedule.get_last_lr()
    [1.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.optimizer = optimizer
        lows = _per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for group, low in zip(optimizer.param_groups, lows, strict=True):
                set_rate(group, low)
        self.max_lrs = _per_group("max_lr", optimizer, max_lr)
        down = float(step_size_up) if step_size_down is None else float(step_size_down)
        self.total_size = float(step_size_up) + down
        self.step_ratio = float(step_size_up) / self.total_size
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lows

    def _start_momentum(self, base_momentum: Any, max_momentum: Any, last_epoch: int) -> None:
        if not {"momentum", "betas"} & self.optimizer.defaults.keys():
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in self.optimizer.defaults
        self.base_momentums = _per_group("base_momentum", self.optimizer, base_momentum)
        self.max_momentums = _per_group("max_momentum", self.optimizer, max_momentum)
        for group, low, high in zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True):
            if last_epoch == -1:
                _set_momentum(group, high)
            group["max_momentum"], group["base_momentum"] = apart(high), apart(low)

    def scale_fn(self, x: float) -> float:
        """How high cycle (or iteration) ``x`` goes."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / 2.0 ** (x - 1) if self.mode == "triangular2" else self.gamma**x  # type: ignore[no-any-return]

    def get_lr(self) -> list[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        place = 1.0 + self.last_epoch / self.total_size - cycle
        height = place / self.step_ratio if place <= self.step_ratio else (place - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            groups = self.optimizer.param_groups
            for group, low, high in zip(groups, self.base_momentums, self.max_momentums, strict=True):
                _set_momentum(group, high - (high - low) * height)
        return [low + (high - low) * height for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; of ``scale_fn`` the attributes if it is an object, nothing if a function."""
        state = super().state_dict()
        custom = state.pop("_scale_fn_custom")
        plain = custom is None or isinstance(custom, type(lambda: None))
        state["_scale_fn_custom"] = None if plain else dict(custom.__dict__)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        rest = dict(state_dict)
        attributes = rest.pop("_scale_fn_custom", None)
        super().load_state_dict(rest)
        if attributes is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(attributes)


def _set_momentum(group: dict[str, Any], value: float) -> None:
    if "momentum" in group:
        group["momentum"] = value
    else:
        group["betas"] = (value, *group["betas"][1:])


class SWALR(LRScheduler):
    """To the rate ``swa_lr`` of weight averaging over ``anneal_epochs`` steps, then constant.

    ``anneal_strategy``: "cos" or "linear". Raises ``ValueError`` for another, and unless anneal_epochs >= 0.

    >>> from tesserack import nn, optim, zeros
    >>> opt = optim.SGD([nn.Parameter(zeros(1))], lr=1.0)
    >>> schedule = SWALR(opt, swa_lr=0.5, anneal_epochs=2, anneal_strategy="linear")
    >>> opt.step(); schedule.step(); schedule.get_last_lr()
    [0.75]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        for group, rate in zip(optimizer.param_groups, _per_group("swa_lr", optimizer, swa_lr), strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', got {anneal_strategy!r}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How much of the rate is ``swa_lr`` after ``step`` steps."""
        done = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return done if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * done)) / 2

    def get_lr(self) -> list[float]:
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(max(0, step - 1)), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            # The rate the annealing came from, from the rate of the step before.
            target, rate = group["swa_lr"], group["lr"]
            start = target if before == 1 else (rate - before * target) / (1 - before)
            rates.append(target * now + start * (1 - now))
        return rates
