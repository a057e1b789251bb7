"""The base class of learning-rate schedules."""

from __future__ import annotations

import math
import warnings
from typing import Any

from tesserack import Tensor
from tesserack.autograd._whole import keeps_itself, whole
from tesserack.optim.optimizer import Optimizer


def apart(value: Any) -> Any:
    """A copy of a tensor, which its owner may write to; numbers as they are."""
    return value.clone() if isinstance(value, Tensor) else value


def current(optimizer: Optimizer, key: str = "lr") -> list[Any]:
    """What the groups hold under ``key``; copies of tensors, which schedules write to."""
    return [apart(group[key]) for group in optimizer.param_groups]


def set_rate(group: dict[str, Any], rate: Any) -> None:
    """A rate that is a tensor stays the tensor it is: others, as recorded graphs, may look at it."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(float(rate))
    else:
        group["lr"] = rate


EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. "
    "Please use `scheduler.step()` to step the scheduler."
)


@keeps_itself
class LRScheduler:
    """Sets ``group["lr"]`` of every parameter group at each :meth:`step`.

    ``last_epoch`` counts the steps taken; -1 starts anew, any other value resumes: the groups then need their
    ``"initial_lr"`` and the rates of the epoch resumed, as a loaded state of the optimizer has both. PyTorch multiplies
    once more where StepLR, MultiStepLR or ConstantLR resume right at a change.

    A subclass defines :meth:`get_lr`, from the current rates, and if it can ``_get_closed_form_lr``, from the base
    rates alone. Works on what the groups hold, so several schedules can act on one optimizer. Rates that are tensors
    are written in place.
    """

    optimizer: Optimizer
    _is_initial = False  # while the rates of the first epoch, or of the one resumed, are set
    _get_lr_called_within_step = False  # of PyTorch's schedules' states; here nothing depends on it

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = whole(cls.__dict__["step"])  # type: ignore[method-assign]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__}: {type(optimizer).__name__} is not an Optimizer")
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", apart(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"{type(self).__name__}: param 'initial_lr' is not specified in param_groups[{i}], "
                    "needed to resume with last_epoch != -1"
                )
        self.optimizer = optimizer
        optimizer._step_known = vars(optimizer).get("step")
        self.base_lrs = current(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        self._is_initial = self._get_lr_called_within_step = False
        self._step_count = 0
        self._last_lr: list[float] = []
        self._initial_step()

    def _initial_step(self) -> None:
        """Set the rates of epoch 0 (or of the epoch resumed), as a subclass's own ``step`` does."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    @whole
    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to ``epoch``; call it after ``optimizer.step()``."""
        if self._step_count == 1 and vars(self.optimizer).get("step") is not self.optimizer._step_known:
            warnings.warn(
                "`optimizer.step()` has been overridden after the scheduler was made, which can no longer tell whether "
                "it is called; make the scheduler afterwards",
                stacklevel=2,
            )
        elif self._step_count == 1 and self.optimizer._steps_taken == 0:
            warnings.warn(
                "lr_scheduler.step() before optimizer.step(): the first learning rate is skipped; swap the two calls",
                stacklevel=2,
            )
        if epoch is not None:
            warnings.warn(
                EPOCH_DEPRECATION_WARNING,
                UserWarning,
                stacklevel=2,
            )
        self._advance(epoch)

    def _advance(self, epoch: int | None) -> None:
        self._step_count += 1
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        if epoch is None:
            self.last_epoch += 1
            rates = self.get_lr()
        else:
            self.last_epoch = math.floor(epoch)
            closed = self._get_closed_form_lr()
            rates = self.get_lr() if closed is None else closed
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_rate(group, rate)
        self._last_lr = current(self.optimizer)

    def get_lr(self) -> list[float]:
        """The rates of ``last_epoch``, computed from the rates the groups have now."""
        raise NotImplementedError(f"{type(self).__name__}: define get_lr()")

    def _get_closed_form_lr(self) -> list[float] | None:
        """The rates of ``last_epoch`` from the base rates, or None if only :meth:`get_lr` knows."""
        return None

    def get_last_lr(self) -> list[float]:
        """The rates set last, one per group."""
        return self._last_lr

    def _group_lrs(self) -> list[float]:
        return current(self.optimizer)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned; load the optimizer's state as well."""
        self.__dict__.update(state_dict)
