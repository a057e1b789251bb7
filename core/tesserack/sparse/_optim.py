"""Optimizer steps where gradients are sparse: only the rows that have one are changed, as far as the method allows."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.sparse._dispatch import kernel
from tesserack.sparse._parts import is_sparse

__all__: list[str] = []


@kernel("sgd_step_")
def sgd_step_(
    params: list[Tensor],
    grads: list[Tensor],
    buffers: list[Tensor],
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first_step: bool,
) -> None:
    dense = [k for k, grad in enumerate(grads) if not is_sparse(grad)]
    if dense:
        some = [params[k] for k in dense], [grads[k] for k in dense], [buffers[k] for k in dense if buffers]
        ts.sgd_step_(*some, lr, momentum, dampening, weight_decay, nesterov, maximize, first_step)
    for k, grad in enumerate(grads):
        if not is_sparse(grad):
            continue
        step = -grad if maximize else grad
        if weight_decay:
            step = step.add(params[k], alpha=weight_decay)
        if momentum:
            if first_step:
                buffers[k].zero_().add_(step)
            else:
                buffers[k].mul_(momentum).add_(step, alpha=1 - dampening)
            step = buffers[k].mul(momentum).add(step) if nesterov else buffers[k]
        params[k].add_(step, alpha=-lr)


def _refusal(name: str, instead: str) -> Any:
    def refuse(*args: Any) -> None:
        raise RuntimeError(f"{name} does not support sparse gradients{instead}")

    return refuse


kernel("adam_step_")(_refusal("Adam", ", please consider SparseAdam instead"))
