"""SparseAdam."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.optim._each import check_usual
from tesserack.optim.optimizer import Group, Optimizer

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam for sparse gradients, which Tesserack does not make: a step with a dense one raises ``RuntimeError``.

    >>> from tesserack import nn, optim, ones
    >>> optim.SparseAdam([nn.Parameter(ones(1))]).defaults["lr"]
    0.001
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def _check_group(self, group: Group) -> None:
        check_usual(group)
        if group["lr"] == 0 or group["eps"] == 0:
            raise ValueError("SparseAdam: expected a positive lr and eps")

    def _update(self, group: Group) -> None:
        if any(param.grad is not None for param in group["params"]):
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
