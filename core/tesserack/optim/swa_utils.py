"""Averages of a model's parameters along the training: stochastic weight averaging and moving averages."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd._whole import whole
from tesserack.nn.modules.batchnorm import _BatchNorm
from tesserack.nn.modules.module import Module
from tesserack.optim.lr_scheduler._cyclic import SWALR

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

Average = Callable[[Tensor, Tensor, Any], Tensor]
MultiAverage = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def _check_decay(decay: float) -> None:
    if not 0 <= decay <= 1:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverage:
    """The moving average ``decay * average + (1 - decay) * current`` of lists of tensors, in place."""
    _check_decay(decay)

    def ema_update(ema_param_list: Sequence[Tensor], current_param_list: Sequence[Tensor], _: Any) -> None:
        with ts.no_grad():
            for average, current in zip(ema_param_list, current_param_list, strict=True):
                if average.is_floating_point() or average.is_complex():
                    average.lerp_(current, 1 - decay)
                else:
                    average.copy_(average * decay + current * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> MultiAverage:
    """The plain average of lists of tensors, in place."""

    def swa_update(averaged_param_list: Sequence[Tensor], current_param_list: Sequence[Tensor], num: Any) -> None:
        with ts.no_grad():
            for average, current in zip(averaged_param_list, current_param_list, strict=True):
                _towards(average, current, float(num) + 1)

    return swa_update


def _towards(average: Tensor, current: Tensor, count: float) -> None:
    """Move the average of ``count - 1`` values to that of ``count``, in place."""
    if average.is_floating_point() or average.is_complex():
        average.lerp_(current, 1 / count)
    else:
        average.add_((current - average).div(count, rounding_mode="trunc").to(average.dtype))


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """The moving average ``decay * average + (1 - decay) * current`` of one tensor."""
    _check_decay(decay)

    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with ts.no_grad():
            return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Average:
    """The plain average of one tensor."""

    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with ts.no_grad():
            mean: Tensor = averaged_param + (current_param - averaged_param) / (num_averaged + 1)
            return mean

    return swa_update


class AveragedModel(Module):
    """A copy of ``model``, in ``module``, whose parameters :meth:`update_parameters` averages (arXiv:1803.05407).

    ``avg_fn(average, current, count)`` returns an average other than the plain one, ``multi_avg_fn`` works on lists in
    place; give one of them at most. ``use_buffers`` averages buffers as well, otherwise they are copied. The buffer
    ``n_averaged`` counts. ``AssertionError`` if both functions are given.

    >>> from tesserack import nn, optim
    >>> model = nn.Linear(2, 1)
    >>> averaged = optim.swa_utils.AveragedModel(model)
    >>> averaged.update_parameters(model)
    >>> averaged.n_averaged.item()
    1
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: MultiAverage | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", ts.tensor(0, dtype=ts.int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _averaged(self, module: Module) -> list[Tensor]:
        buffers: Iterable[Tensor] = module.buffers() if self.use_buffers else ()
        return [tensor.detach() for tensor in itertools.chain(module.parameters(), buffers)]

    @whole
    def update_parameters(self, model: Module) -> None:
        """Take the parameters of ``model`` into the average; the first ones are copied."""
        own = self._averaged(self.module)
        new = [current.to(mine.device) for mine, current in zip(own, self._averaged(model), strict=True)]
        count = int(self.n_averaged.item())
        if count == 0:
            for mine, current in zip(own, new, strict=True):
                mine.copy_(current)
        elif self.avg_fn is not None:
            for mine, current in zip(own, new, strict=True):
                mine.copy_(self.avg_fn(mine, current, self.n_averaged.to(mine.device)))
        else:
            (self.multi_avg_fn or get_swa_multi_avg_fn())(own, new, count)
        if not self.use_buffers:
            for mine, current in zip(self.module.buffers(), model.buffers(), strict=True):
                mine.detach().copy_(current.detach())
        self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running statistics of all batch normalisations anew, from one pass over ``loader``.

    Its items are tensors, or lists or tuples whose first member is one; they go to ``device`` if given.
    """
    layers = {layer: layer.momentum for layer in model.modules() if isinstance(layer, _BatchNorm)}
    if not layers:
        return
    was_training = model.training
    model.train()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    with ts.no_grad():
        for item in loader:
            batch = item[0] if isinstance(item, (list, tuple)) else item
            model(batch if device is None else batch.to(device))
    for layer, momentum in layers.items():
        layer.momentum = momentum
    model.train(was_training)
