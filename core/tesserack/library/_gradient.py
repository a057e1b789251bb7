"""The autograd kernel of a custom operator: a Function around the call, with lists of tensors laid flat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tesserack._native import Tensor, is_grad_enabled
from tesserack.autograd import Function

__all__ = ["autograd_kernel"]

Backward = Callable[..., Any]


def _flatten(args: Sequence[Any]) -> tuple[list[Any], list[int | None]]:
    """Elements of list arguments among the others, and the length of each list (None: no list)."""
    flat: list[Any] = []
    lengths: list[int | None] = []
    for arg in args:
        is_list = isinstance(arg, list)
        flat.extend(arg if is_list else [arg])
        lengths.append(len(arg) if is_list else None)
    return flat, lengths


def _unflatten(flat: Sequence[Any], lengths: Sequence[int | None]) -> list[Any]:
    args: list[Any] = []
    at = 0
    for length in lengths:
        args.append(flat[at] if length is None else [*flat[at : at + length]])
        at += 1 if length is None else length
    return args


def _flat_gradients(name: str, grads: Any, lengths: Sequence[int | None]) -> list[Any]:
    grads = [*grads] if isinstance(grads, tuple) else [grads]
    if len(grads) != len(lengths):
        raise RuntimeError(
            f"{name}: backward returned {len(grads)} gradients, expected {len(lengths)}, one per argument"
        )
    flat: list[Any] = []
    for grad, length in zip(grads, lengths, strict=True):
        if length is None:
            flat.append(grad)
        else:
            flat.extend([None] * length if grad is None else grad)
    return flat


def autograd_kernel(
    name: str, backward: Backward, setup_context: Backward | None, named: Sequence[str] = ()
) -> Callable[..., Any]:
    """The kernel that records a node wherever a gradient is wanted. Arguments that are ``named`` have none."""

    class CustomFunction(Function):
        @staticmethod
        def forward(ctx: Any, call: Any, lengths: list[int | None], *flat: Any) -> Any:
            args = _unflatten(flat, lengths)
            output = call.redispatch(*args)
            ctx._lengths = lengths
            if setup_context is not None and named:
                count = len(args) - len(named)
                keywords = dict(zip(named, args[count:], strict=True))
                setup_context(ctx, inputs=tuple(args[:count]), keyword_only_inputs=keywords, output=output)
            elif setup_context is not None:
                setup_context(ctx, inputs=tuple(args), output=output)
            return tuple(output) if isinstance(output, list) else output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            lengths = ctx._lengths[: len(ctx._lengths) - len(named)]
            rest = sum(1 if length is None else length for length in ctx._lengths[len(lengths) :])
            return (None, None, *_flat_gradients(name, backward(ctx, *grads), lengths), *[None] * rest)

    CustomFunction.__name__ = CustomFunction.__qualname__ = name.replace("::", "_")

    def kernel(call: Any, *args: Any) -> Any:
        flat, lengths = _flatten(args)
        if is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in flat):
            return CustomFunction.apply(call, lengths, *flat)
        return call.redispatch(*args)

    return kernel
