"""Gradients of torchvision's operators, by the operators that it has for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack.aten.operators import namespace
from tesserack.library import register_autograd

__all__ = ["register"]


def register() -> None:
    """Say how gradients flow, where torchvision itself does not: before 0.28 its compiled library does."""
    _register("roi_align", lambda shape, rest: (*rest[:3], *shape, *rest[3:]))
    _register("ps_roi_align", lambda shape, rest: (*rest, *shape), indices=True)
    _register("roi_pool", lambda shape, rest: (*rest, *shape), indices=True)
    _register("ps_roi_pool", lambda shape, rest: (*rest, *shape), indices=True)
    _register_deform_conv2d()


def _register(name: str, arguments: Callable[[Any, Any], tuple[Any, ...]], indices: bool = False) -> None:
    """An operator of a map, regions and numbers: its backward takes the map's shape among the numbers."""

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        image, rois, *ctx.rest = inputs
        ctx.shape = image.shape
        ctx.save_for_backward(rois, *([output[1]] if indices else []))
        if indices:
            ctx.mark_non_differentiable(output[1])

    def backward(ctx: Any, grad: Any, *_: Any) -> tuple[Any, ...]:
        operator = getattr(namespace("torchvision"), f"_{name}_backward")
        image = operator(grad, *ctx.saved_tensors, *arguments(ctx.shape, ctx.rest))
        return (image, *[None] * (1 + len(ctx.rest)))

    register_autograd(f"torchvision::{name}", backward, setup_context=keep)


def _register_deform_conv2d() -> None:
    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:5])
        ctx.rest = inputs[5:]

    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        found = namespace("torchvision")._deform_conv2d_backward(grad, *ctx.saved_tensors, *ctx.rest)
        return (*found, *[None] * len(ctx.rest))

    register_autograd("torchvision::deform_conv2d", backward, setup_context=keep)
