"""Watching the gradients that pass a module's outputs and inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack import Tensor
from tesserack.autograd import Function

Grads = tuple[Any, ...]


class _Tap(Function):
    """The identity; its backward lets a callback see and replace the gradients."""

    @staticmethod
    def forward(ctx: Any, callback: Callable[[Grads], Grads], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.callback = callback
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, *ctx.callback(grads)


class BackwardHooks:
    """The backward hooks of one call of one module.

    An identity on the outputs catches ``grad_output``, another on the inputs catches ``grad_input``; the engine
    reaches the first before the second.
    """

    def __init__(self, module: object, pre: list[Callable[..., Any]], post: list[Callable[..., Any]]) -> None:
        self.module = module
        self.pre = pre
        self.post = post
        self.n_inputs = 0
        self.tracks_inputs = False
        self.grad_output: Grads | None = None

    def watch_inputs(self, args: Grads) -> Grads:
        """The positional arguments, those that require grad passed through the identity."""
        self.n_inputs = len(args)
        watched, at = _tap(args, self._on_grad_input)
        self.tracks_inputs = bool(at)
        return watched

    def watch_outputs(self, result: Any) -> Any:
        """The result of forward (a tensor, or a tuple or list of them), passed through the identity."""
        many = isinstance(result, (tuple, list))
        watched, _ = _tap(tuple(result) if many else (result,), self._on_grad_output)
        if not many:
            return watched[0]
        return type(result)(*watched) if hasattr(result, "_fields") else type(result)(watched)

    def _on_grad_output(self, grads: Grads) -> Grads:
        for hook in self.pre:
            grads = _replaced("full backward pre-hook", "grad_output", grads, hook(self.module, grads))
        self.grad_output = grads
        if not self.tracks_inputs:
            self._without_inputs()
        return grads

    def _on_grad_input(self, grads: Grads) -> Grads:
        if self.grad_output is None:
            raise RuntimeError(
                f"full backward hook: the gradient reached the inputs of {type(self.module).__name__} without passing "
                "its outputs; the output of forward must be a tensor, or a tuple or list of tensors"
            )
        for hook in self.post:
            answer = hook(self.module, grads, self.grad_output)
            grads = _replaced("full backward hook", "grad_input", grads, answer)
        return grads

    def _without_inputs(self) -> None:
        """No input asks for a gradient: the hooks still run, with Nones that they may not replace."""
        nothing = (None,) * self.n_inputs
        for hook in self.post:
            answer = hook(self.module, nothing, self.grad_output)
            if answer is not None and any(grad is not None for grad in answer):
                raise RuntimeError(
                    "full backward hook: no input of the module requires grad, so the hook must return None, "
                    f"got {answer!r}"
                )


def _tap(values: Grads, callback: Callable[[Grads], Grads]) -> tuple[Grads, list[int]]:
    """``values`` with the tensors that require grad tapped; the callback sees one entry per value."""
    at = [i for i, value in enumerate(values) if isinstance(value, Tensor) and value.requires_grad]
    if not at:
        return values, at

    def spread(grads: Grads) -> Grads:
        full: list[Any] = [None] * len(values)
        for i, grad in zip(at, grads, strict=True):
            full[i] = grad
        answer = callback(tuple(full))
        return tuple(answer[i] for i in at)

    tapped = list(values)
    outputs = _Tap.apply(spread, *(values[i] for i in at))
    for i, output in zip(at, outputs, strict=True):
        tapped[i] = output
    return tuple(tapped), at


def _replaced(kind: str, what: str, grads: Grads, answer: Any) -> Grads:
    if answer is None:
        return grads
    replaced: Grads = answer if isinstance(answer, tuple) else (answer,)
    if len(replaced) != len(grads):
        raise RuntimeError(f"{kind}: expected None or {len(grads)} entries for {what}, got {len(replaced)}")
    return replaced
