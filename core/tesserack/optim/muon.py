"""Muon."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.optim.optimizer import Group, Optimizer, require

__all__ = ["Muon"]

_ADJUSTMENTS = ("original", "match_rms_adamw")


class Muon(Optimizer):
    """Momentum made orthogonal by Newton-Schulz steps (Jordan 2024), for matrices of hidden layers.

    Embeddings, heads, biases and vectors belong to another optimizer such as :class:`AdamW`. ``adjust_lr_fn``:
    "original" (None) scales by ``sqrt(max(1, rows / columns))``, "match_rms_adamw" by
    ``0.2 * sqrt(max(rows, columns))``.
    The steps are computed in bfloat16. Raises ``ValueError`` for parameters that are no matrices, negative lr, momentum
    or weight_decay, and another adjustment.

    >>> from tesserack import nn, optim, ones
    >>> w = nn.Parameter(ones(2, 2))
    >>> opt = optim.Muon([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> opt.step()
    >>> bool((w < 1).all())
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for param in group["params"]:
                if param.ndim != 2:
                    raise ValueError(
                        f"Muon only supports 2D parameters whereas we found a parameter with size: {param.shape}"
                    )

    def _check_group(self, group: Group) -> None:
        require(group["lr"] >= 0, "learning rate", group["lr"], "lr >= 0")
        require(group["momentum"] >= 0, "momentum", group["momentum"], "momentum >= 0")
        require(group["weight_decay"] >= 0, "weight_decay value", group["weight_decay"], "weight_decay >= 0")
        adjustment = group["adjust_lr_fn"]
        if adjustment is not None and adjustment not in _ADJUSTMENTS:
            raise ValueError(f"Adjust learning rate function {adjustment} is not supported; expected {_ADJUSTMENTS}")

    def _update(self, group: Group) -> None:
        rate, momentum = float(group["lr"]), group["momentum"]
        for param in group["params"]:
            grad = param.grad
            if grad is None:
                continue
            if param.is_complex():
                raise RuntimeError("Muon does not support complex parameters")
            state = self.state[param]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = ts.zeros_like(grad)
            buffer = state["momentum_buffer"]
            buffer.lerp_(grad, 1 - momentum)
            moved = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
            update = _orthogonal(moved, group["ns_coefficients"], group["ns_steps"], group["eps"])
            rows, columns = param.shape
            if group["adjust_lr_fn"] == "match_rms_adamw":
                adjusted = rate * 0.2 * max(rows, columns) ** 0.5
            else:
                adjusted = rate * max(1.0, rows / columns) ** 0.5
            param.mul_(1 - rate * group["weight_decay"])
            param.add_(update.to(param.dtype), alpha=-adjusted)


def _orthogonal(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Nearly ``u @ v.T`` of the singular value decomposition, by a quintic iteration in bfloat16."""
    if steps >= 100:
        raise ValueError("Muon: expected fewer than 100 Newton-Schulz steps")
    if len(coefficients) != 3:
        raise ValueError("Muon: expected three Newton-Schulz coefficients")
    a, b, c = coefficients
    x = matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = ts.addmm(x, ts.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
