"""Limited-memory BFGS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.optim import _wolfe
from tesserack.optim._each import as_real
from tesserack.optim.optimizer import Group, Optimizer, require

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last ``history_size`` gradients (Nocedal and Wright, algorithm 7.4).

    One call of ``step(closure)`` makes up to ``max_iter`` steps; the closure clears gradients, computes the loss, calls
    backward and returns the loss, and is called up to ``max_eval`` times (max_iter * 5 / 4 if None). Stops when no
    element
    of the gradient exceeds ``tolerance_grad``, or loss or parameters move less than ``tolerance_change``.
    ``line_search_fn``: None (steps of ``lr``) or "strong_wolfe". Takes one group of real or complex parameters.
    Raises ``ValueError`` for a negative lr and for several groups, ``RuntimeError`` for another line search.

    >>> from tesserack import nn, optim, ones
    >>> w = nn.Parameter(ones(2))
    >>> opt = optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     opt.zero_grad()
    ...     loss = ((w - 3) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> opt.step(closure).item()
    8.0
    >>> [round(x, 4) for x in w.tolist()]
    [3.0, 3.0]
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def _check_group(self, group: Group) -> None:
        require(group["lr"] >= 0, "learning rate", group["lr"], "lr >= 0")

    # --- all parameters as one vector -----------------------------------------------------------------------------

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]  # type: ignore[no-any-return]

    def _flat_grad(self) -> Tensor:
        parts = [ts.zeros_like(p) if p.grad is None else p.grad for p in self._params]
        return ts.cat([_real(part.resolve_conj()).reshape(-1) for part in parts])

    def _move(self, distance: float, direction: Tensor) -> None:
        start = 0
        for param in self._params:
            values = _real(param)
            count = values.numel()
            values.add_(direction[start : start + count].view_as(values), alpha=distance)
            start += count

    # --- the step -------------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any]) -> Any:
        """Minimise; returns the first loss. ``closure`` computes loss and gradients anew."""
        with ts.no_grad():
            return _Run(self, ts.enable_grad()(closure)).minimise()


class _Run:
    """One call of ``step``."""

    def __init__(self, optimizer: LBFGS, closure: Callable[[], Any]) -> None:
        self.optimizer = optimizer
        self.closure = closure
        self.group = optimizer.param_groups[0]
        self.state = optimizer.state[optimizer._params[0]]
        self.state.setdefault("func_evals", 0)
        self.state.setdefault("n_iter", 0)

    def minimise(self) -> Any:
        group, state = self.group, self.state
        first_loss = self.closure()
        self.loss, self.evaluations = float(first_loss), 1
        state["func_evals"] += 1
        self.grad = self.optimizer._flat_grad()
        if self._small_gradient():
            return first_loss
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            self._choose_direction()
            direction = state["d"]
            state["prev_flat_grad"] = self.grad.clone()
            state["prev_loss"] = before = self.loss
            rate = float(group["lr"])
            state["t"] = rate
            if state["n_iter"] == 1:
                size = self.grad.abs().sum().item()
                state["t"] = rate / size if size > 1 else rate
            slope = self.grad.dot(direction).item()
            if slope > -group["tolerance_change"]:
                break
            evaluated = self._advance(direction, slope, iteration == group["max_iter"])
            self.evaluations += evaluated
            state["func_evals"] += evaluated
            if self.evaluations >= group["max_eval"] or self._small_gradient():
                break
            moved = direction.mul(state["t"]).abs().max().item()
            if moved <= group["tolerance_change"] or abs(self.loss - before) < group["tolerance_change"]:
                break
        return first_loss

    def _small_gradient(self) -> bool:
        return bool(self.grad.abs().max().item() <= self.group["tolerance_grad"])

    def _choose_direction(self) -> None:
        """Minus the inverse Hessian, as the history approximates it, times the gradient: into ``state["d"]``."""
        state = self.state
        if state["n_iter"] == 1:
            state.update(d=self.grad.neg(), old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return
        changes, steps, weights = state["old_dirs"], state["old_stps"], state["ro"]
        change, step = self.grad.sub(state["prev_flat_grad"]), state["d"].mul(state["t"])
        curvature = change.dot(step).item()
        if curvature > 1e-10:
            if len(changes) == self.group["history_size"]:
                for history in (changes, steps, weights):
                    history.pop(0)
            changes.append(change)
            steps.append(step)
            weights.append(1.0 / curvature)
            state["H_diag"] = curvature / change.dot(change).item()
        q = self.grad.neg()
        shares = state.setdefault("al", [None] * self.group["history_size"])
        for i in reversed(range(len(changes))):
            shares[i] = steps[i].dot(q).item() * weights[i]
            q.add_(changes[i], alpha=-shares[i])
        q.mul_(state["H_diag"])
        for i, (change, step) in enumerate(zip(changes, steps, strict=True)):
            q.add_(step, alpha=shares[i] - change.dot(q).item() * weights[i])
        state["d"] = q

    def _advance(self, direction: Tensor, slope: float, last: bool) -> int:
        """Move the parameters; returns how often the loss was computed."""
        search, state = self.group["line_search_fn"], self.state
        if search is None:
            self.optimizer._move(state["t"], direction)
            if last:
                return 0
            self.loss = float(self.closure())
            self.grad = self.optimizer._flat_grad()
            return 1
        if search != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        origin = [param.clone() for param in self.optimizer._params]

        def evaluate(at: float) -> _wolfe.Point:
            self.optimizer._move(at, direction)
            loss = float(self.closure())
            grad = self.optimizer._flat_grad()
            for param, value in zip(self.optimizer._params, origin, strict=True):
                param.copy_(value)
            return _wolfe.Point(at, loss, grad, grad.dot(direction).item())

        start = _wolfe.Point(0.0, self.loss, self.grad, slope)
        point, evaluated = _wolfe.search(evaluate, start, state["t"], direction.abs().max().item())
        state["t"], self.loss, self.grad = point.at, point.loss, point.grad
        self.optimizer._move(point.at, direction)
        return evaluated


def _real(tensor: Tensor) -> Tensor:
    return as_real(tensor) if tensor.is_complex() else tensor
