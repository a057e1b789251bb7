"""Gradients of every sample apart, left beside the parameters, as tools for private training ask for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tesserack import Tensor
from tesserack.autograd import Function
from tesserack.nn.modules.module import Module
from tesserack.utils import _pytree as pytree

__all__ = ["call_for_per_sample_grads"]


def call_for_per_sample_grads(
    module: Module, *, batch_size: int | None = None, loss_reduction: str = "sum", batch_first: bool = True
) -> Callable[..., Any]:
    """A forward whose backward leaves ``grad_sample``, one gradient for each sample, beside every parameter.

    Args:
        module: called for each sample as a batch of one; its parameters' ``grad`` stays as it is.
        batch_size: the samples in a call; read from its tensors if None.
        loss_reduction: ``"mean"`` multiplies by the number of samples, as a loss that averages divides by it.
        batch_first: whether samples lie along dim 0 of what comes and goes, or along dim 1.

    Raises:
        RuntimeError: for other options, gradients that a former call left, and inputs of several batch sizes.

    >>> import tesserack as ts
    >>> from tesserack.nn.utils._per_sample_grad import call_for_per_sample_grads
    >>> layer = ts.nn.Linear(4, 3)
    >>> call_for_per_sample_grads(layer)(ts.ones(5, 4)).sum().backward()
    >>> layer.weight.grad_sample.shape, layer.weight.grad
    (tesserack.Size([5, 3, 4]), None)
    """
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(f"call_for_per_sample_grads: expected loss_reduction 'sum' or 'mean', got {loss_reduction}")
    if not isinstance(module, Module):
        raise RuntimeError(f"call_for_per_sample_grads: expected an nn.Module, got {type(module).__name__}")
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        raise RuntimeError(f"call_for_per_sample_grads: expected a positive int as batch_size, got {batch_size!r}")
    for name, weight in module.named_parameters():
        if getattr(weight, "grad_sample", None) is not None:
            raise RuntimeError(f"call_for_per_sample_grads: {name} has a grad_sample already; set it to None first")
    dim = 0 if batch_first else 1

    @functools.wraps(module.forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        from tesserack import func

        leaves, spec = pytree.tree_flatten((args, kwargs))
        count = batch_size or _samples(leaves, dim)
        scale = count if loss_reduction == "mean" else 1
        weights = {name: _Copies.apply(p, count, scale) for name, p in module.named_parameters() if p.requires_grad}
        batched = [isinstance(leaf, Tensor) and leaf.ndim > dim and leaf.shape[dim] == count for leaf in leaves]
        tensors = [leaf for leaf, is_batched in zip(leaves, batched, strict=True) if is_batched]

        def of_one(weights: dict[str, Tensor], tensors: list[Tensor]) -> Any:
            given = iter(tensors)
            ones = [next(given).unsqueeze(dim) if b else leaf for leaf, b in zip(leaves, batched, strict=True)]
            args, kwargs = pytree.tree_unflatten(ones, spec)
            return pytree.tree_map(lambda t: t.squeeze(dim), func.functional_call(module, weights, args, kwargs))

        return func.vmap(of_one, in_dims=(0, dim), out_dims=dim, randomness="different")(weights, tensors)

    return forward


class _Copies(Function):
    """A parameter once for every sample; the gradient stays beside the parameter."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, count: int, scale: int) -> Tensor:
        ctx.weight, ctx.scale = weight, scale
        return weight.detach().expand(count, *weight.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, None]:
        before = getattr(ctx.weight, "grad_sample", None)
        found = grad * ctx.scale
        ctx.weight.grad_sample = found if before is None else before + found
        return None, None, None


def _samples(leaves: list[Any], dim: int) -> int:
    sizes = {leaf.shape[dim] for leaf in leaves if isinstance(leaf, Tensor)}
    if len(sizes) != 1:
        raise RuntimeError(
            f"call_for_per_sample_grads: expected inputs of one batch size, got {sorted(sizes)}; pass batch_size"
        )
    return int(sizes.pop())
