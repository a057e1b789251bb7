"""SparseAdam."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.optim._each import EachOptimizer, State, check_usual, zeros
from tesserack.optim.optimizer import Group, Optimizer

__all__ = ["SparseAdam"]


class SparseAdam(EachOptimizer, Optimizer):
    """Adam where gradients are sparse: moments and parameters change only in the rows that have a gradient.

    Raises ``ValueError`` for options out of range and for sparse parameters, ``RuntimeError`` for a dense gradient.

    >>> from tesserack import nn, optim, tensor
    >>> table = nn.Embedding(3, 2, sparse=True)
    >>> opt = optim.SparseAdam(table.parameters(), lr=0.5)
    >>> before = table.weight.detach().clone()
    >>> table(tensor([1])).sum().backward()
    >>> opt.step()
    >>> (table.weight.detach() != before).any(1).tolist()
    [False, True, False]
    """

    _takes_sparse = True

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        sparse = [k for group in self.param_groups for k, p in enumerate(group["params"]) if p.layout is not ts.strided]
        if sparse:
            raise ValueError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")
        if any(p.is_complex() for group in self.param_groups for p in group["params"]):
            raise ValueError("SparseAdam does not support complex parameters; give their view_as_real")

    def _check_group(self, group: Group) -> None:
        check_usual(group)
        if group["lr"] == 0 or group["eps"] == 0:
            raise ValueError("SparseAdam: expected a positive lr and eps")

    def _start(self, state: State, param: Tensor, group: Group) -> None:
        state["exp_avg"] = zeros(param)
        state["exp_avg_sq"] = zeros(param)

    _counts_in_tensors = False

    def _step_one(self, param: Tensor, grad: Tensor, state: State, group: Group) -> None:
        if grad.layout is ts.strided:
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        grad = grad.coalesce()
        if grad._nnz() == 0:
            return
        beta1, beta2 = group["betas"]
        values = grad._values()

        def made(changes: Tensor) -> Tensor:
            return ts.sparse_coo_tensor(grad._indices(), changes, grad.shape, is_coalesced=True)

        old_mean = state["exp_avg"].sparse_mask(grad)._values()
        mean_change = (values - old_mean) * (1 - beta1)
        state["exp_avg"].add_(made(mean_change))
        old_square = state["exp_avg_sq"].sparse_mask(grad)._values()
        square_change = (values * values - old_square) * (1 - beta2)
        state["exp_avg_sq"].add_(made(square_change))
        mean = old_mean + mean_change
        scale = (old_square + square_change).sqrt().add(group["eps"])
        step = state["step"]
        rate = float(group["lr"]) * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        param.add_(made(-rate * mean / scale))
