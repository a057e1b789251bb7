"""An optimizer whose ranks go their own ways for some steps, and then meet at their mean."""

from __future__ import annotations

import warnings
from typing import Any

from tesserack.optim.optimizer import Optimizer

__all__ = ["PostLocalSGDOptimizer"]


class PostLocalSGDOptimizer(Optimizer):
    """Another optimizer's steps, after which an averager may take the mean of parameters over ranks.

    >>> import tesserack as ts
    >>> from tesserack.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> layer = ts.nn.Linear(2, 1)
    >>> averager = PeriodicModelAverager(period=4, warmup_steps=10)
    >>> optimizer = PostLocalSGDOptimizer(ts.optim.SGD(layer.parameters(), lr=0.1), averager)
    >>> layer(ts.ones(1, 2)).sum().backward()
    >>> optimizer.step()
    >>> averager.step
    1
    >>> ts.distributed.destroy_process_group()
    """

    def __init__(self, optim: Optimizer, averager: Any) -> None:
        self.optim, self.averager = optim, averager
        self.param_groups = optim.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The optimizer's."""
        return self.optim.state

    def __repr__(self) -> str:
        return repr(self.optim)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's, and the averager's number of steps as ``"step"``."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: Any) -> None:
        """Take what :meth:`state_dict` gave. Without ``"step"`` the averager begins anew, with a warning."""
        self.optim.load_state_dict(state_dict)
        self.param_groups = self.optim.param_groups
        if "step" not in state_dict:
            warnings.warn(
                "Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.",
                stacklevel=2,
            )
        self.averager.step = state_dict.get("step", 0)

    def step(self, closure: Any = None) -> Any:
        """A step of the optimizer, and of the averager."""
        loss = self.optim.step(closure)
        self.averager.average_parameters(params=self.param_groups)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The optimizer's."""
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """The optimizer's."""
        self.optim.add_param_group(param_group)
