"""Steps of optimizers as functions of parameters, gradients and lists of state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor, optim

__all__: list[str] = []

Lists = Mapping[str, Sequence[Any]]


def _run(optimizer: optim.Optimizer, params: list[Tensor], grads: list[Tensor]) -> None:
    """One step with these gradients; those of the parameters stay what they are."""
    before = [param.grad for param in params]
    try:
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad
        optimizer.step()
    finally:
        for param, kept in zip(params, before, strict=True):
            param.grad = kept


def _step(kind: type[Any], params: list[Tensor], grads: list[Tensor], lists: Lists, options: dict[str, Any]) -> None:
    """One step of an optimizer over the states given, which are changed in place."""
    optimizer = kind(params, **options)
    for i, param in enumerate(params):
        optimizer.state[param].update({name: tensors[i] for name, tensors in lists.items()})
    _run(optimizer, params, grads)
    with ts.no_grad():
        for name, tensors in lists.items():
            for param, tensor in zip(params, tensors, strict=True):
                kept = optimizer.state[param][name]
                if isinstance(tensor, Tensor) and kept is not tensor:
                    tensor.copy_(ts.as_tensor(kept))


def _options(given: dict[str, Any], **renamed: Any) -> dict[str, Any]:
    """What an optimizer is made with, less what says how PyTorch computes."""
    left_out = ("foreach", "capturable", "differentiable", "fused", "has_complex", "grad_scale", "found_inf",
                "has_sparse_grad")  # fmt: skip
    return {**{name: value for name, value in given.items() if name not in left_out}, **renamed}


def adam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor],
    *,
    beta1: float,
    beta2: float,
    **options: Any,
) -> None:
    """A step of :class:`Adam`; options are amsgrad, lr, weight_decay, eps, maximize, decoupled_weight_decay."""
    lists = {"step": state_steps, "exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs}
    if options.get("amsgrad"):
        lists["max_exp_avg_sq"] = max_exp_avg_sqs
    _step(optim.Adam, params, grads, lists, _options(options, betas=(beta1, beta2)))


def adamw(*lists: Any, **options: Any) -> None:
    """A step of :class:`AdamW`; arguments as those of :func:`adam`."""
    adam(*lists, **options, decoupled_weight_decay=True)


def sgd(
    params: list[Tensor], d_p_list: list[Tensor], momentum_buffer_list: list[Tensor | None], **options: Any
) -> None:
    """A step of :class:`SGD`; options are weight_decay, momentum, lr, dampening, nesterov, maximize."""
    optimizer = optim.SGD(params, **_options(options))
    for param, buffer in zip(params, momentum_buffer_list, strict=True):
        if buffer is not None:
            optimizer.state[param]["momentum_buffer"] = buffer
    _run(optimizer, params, d_p_list)
    if options.get("momentum"):
        momentum_buffer_list[:] = [optimizer.state[param].get("momentum_buffer") for param in params]


def rmsprop(
    params: list[Tensor],
    grads: list[Tensor],
    square_avgs: list[Tensor],
    grad_avgs: list[Tensor],
    momentum_buffer_list: list[Tensor],
    state_steps: list[Tensor],
    **options: Any,
) -> None:
    """A step of :class:`RMSprop`; options are lr, alpha, eps, weight_decay, momentum, centered, maximize."""
    lists = {"step": state_steps, "square_avg": square_avgs}
    if options.get("centered"):
        lists["grad_avg"] = grad_avgs
    if options.get("momentum"):
        lists["momentum_buffer"] = momentum_buffer_list
    _step(optim.RMSprop, params, grads, lists, _options(options))


def adagrad(
    params: list[Tensor],
    grads: list[Tensor],
    state_sums: list[Tensor],
    state_steps: list[Tensor],
    **options: Any,
) -> None:
    """A step of :class:`Adagrad`; options are lr, weight_decay, lr_decay, eps, maximize."""
    _step(optim.Adagrad, params, grads, {"step": state_steps, "sum": state_sums}, _options(options))


def adadelta(
    params: list[Tensor],
    grads: list[Tensor],
    square_avgs: list[Tensor],
    acc_deltas: list[Tensor],
    state_steps: list[Tensor],
    **options: Any,
) -> None:
    """A step of :class:`Adadelta`; options are lr, rho, eps, weight_decay, maximize."""
    lists = {"step": state_steps, "square_avg": square_avgs, "acc_delta": acc_deltas}
    _step(optim.Adadelta, params, grads, lists, _options(options))


def adamax(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_infs: list[Tensor],
    state_steps: list[Tensor],
    *,
    beta1: float,
    beta2: float,
    **options: Any,
) -> None:
    """A step of :class:`Adamax`; options are eps, lr, weight_decay, maximize."""
    lists = {"step": state_steps, "exp_avg": exp_avgs, "exp_inf": exp_infs}
    _step(optim.Adamax, params, grads, lists, _options(options, betas=(beta1, beta2)))
