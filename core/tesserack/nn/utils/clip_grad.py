"""Limiting gradients before an optimizer step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator

import tesserack as ts
from tesserack import Tensor, _native, no_grad, ops
from tesserack.autograd._whole import whole

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def _listed(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def _grads(parameters: Iterable[Tensor]) -> list[Tensor]:
    return [grad for parameter in parameters if (grad := parameter.grad) is not None]


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all ``tensors`` as if they were one vector; 0 for none. ``foreach`` is accepted and has no effect.

    Raises ``RuntimeError`` for a norm that is not finite, if ``error_if_nonfinite``.
    """
    tensors = _listed(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return ts.tensor(0.0)
    with no_grad():
        device = tensors[0].device
        if norm_type == 2 and _native._are_alike(tensors):
            total: Tensor = ops._list_norms([ops._list_norms(tensors)]).view(())
        else:
            norms = ts.stack([tensor.norm(norm_type).to(device) for tensor in tensors])
            total = norms.max() if math.isinf(norm_type) else norms.norm(norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"get_total_norm: the norm of order {norm_type} is {total.item()}; "
            "look for infinities or NaNs, or pass error_if_nonfinite=False"
        )
    return total


@whole
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale all gradients by ``max_norm / total_norm`` if that is below 1, in place."""
    grads = _grads(_listed(parameters))
    with no_grad():
        # Always multiplied, by 1 at most: no wait for the device to learn whether clipping is needed.
        scale = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
        if grads and not scale.ndim and _native._are_alike([*grads, scale]):
            ops._list_scale_(grads, scale)
            return
        for grad in grads:
            grad.mul_(scale.to(grad.device))


@whole
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients of ``parameters``, in place, so that their joint norm is at most ``max_norm``.

    Returns the norm before. ``foreach`` is accepted for compatibility and has no effect.

    >>> from tesserack import nn, zeros, tensor
    >>> w = nn.Parameter(zeros(2))
    >>> w.grad = tensor([3.0, 4.0])
    >>> clip_grad_norm_(w, 1.0).item(), [round(x, 4) for x in w.grad.tolist()]
    (5.0, [0.6, 0.8])
    """
    listed = _listed(parameters)
    if not listed and isinstance(parameters, Iterator):
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2)
    total = get_total_norm(_grads(listed), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(listed, max_norm, total)
    return total


@whole
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Limit every element of the gradients to ``[-clip_value, clip_value]``, in place.

    >>> from tesserack import nn, zeros, tensor
    >>> w = nn.Parameter(zeros(2))
    >>> w.grad = tensor([3.0, -0.5])
    >>> clip_grad_value_(w, 1.0)
    >>> w.grad.tolist()
    [1.0, -0.5]
    """
    limit = float(clip_value)
    with no_grad():
        for grad in _grads(_listed(parameters)):
            grad.clamp_(min=-limit, max=limit)


@whole
def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """:func:`clip_grad_norm_` under its old name, with a ``FutureWarning``."""
    warnings.warn(
        "`nn.utils.clip_grad_norm` is now deprecated in favor of `nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
