"""Cross entropy of a linear layer's outputs, by parts of the batch that never hold all logits at once."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd import Function
from tesserack.autograd.function import once_differentiable
from tesserack.nn._losses import cross_entropy
from tesserack.ops.registry import operators

__all__ = ["linear_cross_entropy"]

_ACCUMULATION = ("auto", "accurate", "balanced", "compact")
_linear: Any = operators()["linear"]


@dataclass
class LinearCrossEntropyOptions:
    """How :func:`linear_cross_entropy` takes the batch apart.

    Args:
        allow_retain_graph: kept for PyTorch's programs; ``backward`` may always be repeated with ``retain_graph=True``.
        batch_chunk_size: rows of a part; None for what ``chunking_method`` gives.
        chunking_method: ``"aspect_ratio"``: the logits of a part take about the memory of the input;
            ``"aspect_ratio:N"``: an N-th of it; ``"auto"``: ``"aspect_ratio:2"`` unless ``batch_chunk_size`` is given;
            None: ``batch_chunk_size`` alone.
        acc_policy: ``"accurate"`` computes logits and gradients in ``acc_dtype``; the others only sum in it.
        acc_dtype: None for float32 where the input is float16 or bfloat16, else the input's.

    Raises ``ValueError`` for other values.

    >>> LinearCrossEntropyOptions(batch_chunk_size=128).batch_chunk_size
    128
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        if self.acc_policy not in _ACCUMULATION:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}, expected one of {', '.join(_ACCUMULATION)}")
        if self.chunking_method not in (None, "auto"):
            self._parts_of_input()
        rows = self.batch_chunk_size
        if rows is not None and (not isinstance(rows, int) or rows <= 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {rows!r}")
        floats = (None, ts.float16, ts.bfloat16, ts.float32, ts.float64)
        if self.acc_dtype not in floats:
            raise ValueError(f"acc_dtype must be None or a floating dtype, got {self.acc_dtype}")

    def _parts_of_input(self) -> int:
        name, colon, factor = (self.chunking_method or "").partition(":")
        factor = factor if colon else "1"
        if name != "aspect_ratio" or not factor.isdigit() or not int(factor):
            raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        return int(factor)

    def rows(self, batch: int, features: int, classes: int) -> int:
        """How many rows of the batch are taken at a time."""
        if self.chunking_method is None or (self.chunking_method == "auto" and self.batch_chunk_size):
            return min(batch, self.batch_chunk_size or batch)
        parts = 2 if self.chunking_method == "auto" else self._parts_of_input()
        alike = -(-batch // -(-classes // features))
        rows = max((1 << (alike - 1).bit_length()) // parts, 1)
        if self.batch_chunk_size not in (None, rows):
            raise ValueError(
                f"linear_cross_entropy: batch_chunk_size {self.batch_chunk_size} and chunking_method "
                f"{self.chunking_method!r}, which gives {rows}, disagree; give one of them"
            )
        return min(batch, rows)

    def accumulation_dtype(self, dtype: Any) -> Any:
        """The dtype that losses and gradients are summed in."""
        return self.acc_dtype or (ts.float32 if dtype in (ts.float16, ts.bfloat16) else dtype)


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """``cross_entropy(linear(input, linear_weight, linear_bias), target)``, in parts if ``options`` are given.

    By parts the logits of the whole batch never exist, which a vocabulary of many classes makes the largest tensor of a
    language model; the gradient is then computed on the way, once, and cannot be differentiated again.

    Args:
        input: (features) or (N, features).
        linear_weight: (C, features), or (C, d1, ..., features) for a target of several dims.
        target: class indices () or (N, d1, ...), or probabilities (C) or (N, C, d1, ...).
        linear_bias: (C, d1, ...).
        weight: of each class, (C).
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.
        ignore_index: class index that does not count; -100 for None.
        label_smoothing: the share of a uniform distribution in the target, 0 to 1.

    Returns: the loss, of the target's shape without classes for ``"none"``, else a scalar.

    >>> import tesserack as ts
    >>> x, w = ts.zeros(4, 3), ts.zeros(8, 3)
    >>> options = LinearCrossEntropyOptions(batch_chunk_size=2)
    >>> round(linear_cross_entropy(x, w, ts.tensor([0, 1, 2, 3]), options=options).exp().item(), 3)
    8.0
    """
    ignored = -100 if ignore_index is None else ignore_index
    chosen: dict[str, Any] = {"weight": weight, "ignore_index": ignored, "label_smoothing": label_smoothing}
    if options is not None:
        whole = input.ndim != 2 or linear_weight.ndim != 2 or reduction == "none" or not input.numel()
        if not whole and reduction in ("mean", "sum"):
            return _by_parts(input, linear_weight, linear_bias, target, reduction, chosen, options)
        warnings.warn(
            "linear_cross_entropy: parts are taken of (N, features) by (C, features) with reduction 'mean' or 'sum'; "
            "computing the whole",
            stacklevel=2,
        )
    logits = _logits(input, linear_weight, linear_bias)
    loss: Tensor = cross_entropy(logits, target, reduction=reduction, **chosen)
    return loss


def _logits(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if weight.ndim < 2:
        raise RuntimeError(
            f"linear_cross_entropy: expected linear_weight (C, ..., features), got {tuple(weight.shape)}"
        )
    classes, *dims = weight.shape[:-1]
    if dims and input.ndim < 2:
        raise RuntimeError(
            f"linear_cross_entropy: expected rows (N, features) for linear_weight {tuple(weight.shape)}, got one"
        )
    flat_bias = None if bias is None else bias.reshape(-1)
    logits: Tensor = _linear(input, weight.flatten(0, -2), flat_bias)
    return logits.unflatten(-1, (classes, *dims)) if dims else logits


def _by_parts(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    reduction: str,
    chosen: dict[str, Any],
    options: LinearCrossEntropyOptions,
) -> Tensor:
    if target.ndim == 0 or len(target) != len(input):
        raise ValueError(
            f"linear_cross_entropy: expected a target for each of {len(input)} rows, got shape {tuple(target.shape)}"
        )
    for name, other in (("linear_weight", weight), ("linear_bias", bias)):
        if other is not None and other.dtype is not input.dtype:
            raise RuntimeError(
                f"linear_cross_entropy: expected {name} of the input's dtype {input.dtype}, got {other.dtype}"
            )
    rows = options.rows(len(input), input.shape[1], len(weight))
    total: Any = _Parts.apply(input, weight, bias, target, chosen, rows, options)
    if reduction == "sum":
        return total  # type: ignore[no-any-return]
    return total / _count(input, target, chosen)  # type: ignore[no-any-return]


def _count(input: Tensor, target: Tensor, chosen: dict[str, Any]) -> Any:
    """What a mean divides by: the targets, or the weights of their classes."""
    if target.is_floating_point():
        return len(input)
    counted = target != chosen["ignore_index"]
    if chosen["weight"] is None:
        return counted.sum()
    return chosen["weight"][target.where(counted, 0)].where(counted, 0).sum()


class _Parts(Function):
    """The sum of the losses; the gradients of each part are taken while its logits are there."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        chosen: dict[str, Any],
        rows: int,
        options: LinearCrossEntropyOptions,
    ) -> Tensor:
        dtype = options.accumulation_dtype(input.dtype)
        computed = dtype if options.acc_policy == "accurate" else input.dtype
        leaves = [None if t is None else t.detach().to(computed) for t in (weight, bias)]
        wanted, by_target = ctx.needs_input_grad[:3], ctx.needs_input_grad[3]
        sums: list[Any] = [None if t is None else ts.zeros_like(t, dtype=dtype) for t in leaves]
        pieces: list[Tensor] = []
        target_pieces: list[Tensor] = []
        total = ts.zeros((), dtype=dtype, device=input.device)
        for begin in range(0, len(input), rows):
            part = [input.detach()[begin : begin + rows].to(computed), *leaves]
            with ts.enable_grad():
                asked = [t.requires_grad_() for t, want in zip(part, wanted, strict=True) if want and t is not None]
                goal = target.detach()[begin : begin + rows]
                if by_target:
                    asked.append(goal.requires_grad_())
                loss = cross_entropy(_linear(*part), goal, reduction="sum", **chosen)
            total += loss.detach()
            grads = iter(ts.autograd.grad(loss, asked)) if asked else iter(())
            if wanted[0]:
                pieces.append(next(grads).to(input.dtype))
            for k in (1, 2):
                if wanted[k] and part[k] is not None:
                    sums[k - 1] += next(grads)
            if by_target:
                target_pieces.append(next(grads).to(target.dtype))
        kept = [
            ts.cat(pieces) if pieces else None,
            *(g if want else None for g, want in zip(sums, wanted[1:], strict=True)),
            ts.cat(target_pieces) if by_target else None,
        ]
        dtypes = [None if t is None else t.dtype for t in (input, weight, bias, target)]
        ctx.save_for_backward(*(None if g is None else g.to(d) for g, d in zip(kept, dtypes, strict=True)))
        return total.to(input.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        parts = (None if g is None else g * grad.to(g.dtype) for g in ctx.saved_tensors)
        return (*parts, None, None, None)
