"""Connectionist temporal classification (Graves et al., ICML 2006)."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor, ops
from tesserack.autograd.function import once_differentiable
from tesserack.nn._kernels import has_kernel
from tesserack.nn._losses_margin import reduced
from tesserack.ops.registry import operators

__all__ = ["ctc_loss"]


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Minus the log of the probability of all ways to read ``targets`` from ``log_probs`` (T, N, C) or (T, C).

    ``targets`` is (N, S), or all of them one after the other; lengths are tensors or sequences of N numbers. A way goes
    through the labels in order, repeated or with ``blank`` between. "mean" divides each loss by its target's length
    first;
    ``zero_infinity`` makes infinite losses, of targets too long, zero. ``log_probs`` are those of ``log_softmax``,
    which
    the gradient relies on as PyTorch's does. Raises ``RuntimeError`` for lengths that do not fit.

    >>> import tesserack as ts
    >>> chances = ts.full((2, 1, 2), 0.5).log()
    >>> round(ctc_loss(chances, ts.tensor([[1]]), [2], [1]).exp().item(), 4)
    1.3333
    """
    single = log_probs.ndim == 2
    if log_probs.ndim not in (2, 3) or not log_probs.is_floating_point():
        raise RuntimeError(f"ctc_loss: expected floating log_probs (T, N, C) or (T, C), got {tuple(log_probs.shape)}")
    if single:
        log_probs = log_probs.unsqueeze(1)
    if log_probs.is_meta:
        loss = _without_data(log_probs, targets, input_lengths, target_lengths, blank)
        loss = reduced("ctc_loss", loss, reduction)
        return loss.squeeze(0) if single and reduction == "none" else loss
    lengths, sizes = _numbers(input_lengths), _numbers(target_lengths)
    labels = _padded_targets(log_probs, targets, lengths, sizes, blank)
    if has_kernel("ctc_loss", log_probs) and log_probs.dtype in (ts.float32, ts.float64):
        tables = [ts.tensor(numbers, dtype=ts.int64, device=log_probs.device) for numbers in (lengths, sizes)]
        loss = CtcLoss.apply(log_probs, labels, *tables, blank, zero_infinity)
    else:
        loss = _CtcByParts.apply(log_probs, labels, lengths, sizes, blank, zero_infinity)
    if zero_infinity:
        loss = ts.where(loss == float("inf"), ts.zeros_like(loss), loss)
    if reduction == "mean":
        return (loss / ts.tensor([max(1, n) for n in sizes], dtype=loss.dtype, device=loss.device)).mean()
    loss = reduced("ctc_loss", loss, reduction)
    return loss.squeeze(0) if single and reduction == "none" else loss


def _numbers(lengths: Any) -> list[int]:
    if isinstance(lengths, Tensor):
        if lengths.is_floating_point() or lengths.is_complex():
            raise RuntimeError(f"ctc_loss: expected lengths of an integer dtype, got {lengths.dtype}")
        lengths = lengths.tolist()
    return [int(lengths)] if isinstance(lengths, int) else [int(n) for n in lengths]


def _check_counts(log_probs: Tensor, lengths: int, sizes: int, blank: int) -> None:
    _, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError(f"ctc_loss: blank must be in label range, got {blank} for {classes} classes")
    if lengths != batch or sizes != batch:
        raise RuntimeError(f"ctc_loss: expected {batch} input and target lengths, got {lengths} and {sizes}")


def _without_data(log_probs: Tensor, targets: Tensor, lengths: Any, sizes: Any, blank: int) -> Tensor:
    """A loss for each sequence, after checking what shapes alone can say."""
    _check_counts(log_probs, _count(lengths), _count(sizes), blank)
    batch = log_probs.shape[1]
    if targets.ndim != 1 and not (targets.ndim == 2 and targets.shape[0] == batch):
        raise RuntimeError(f"ctc_loss: expected targets ({batch}, at least 0), got {tuple(targets.shape)}")
    return log_probs.sum((0, 2))


def _count(lengths: Any) -> int:
    if isinstance(lengths, int):
        return 1
    return lengths.numel() if isinstance(lengths, Tensor) else len(lengths)


def _padded_targets(log_probs: Tensor, targets: Tensor, lengths: list[int], sizes: list[int], blank: int) -> Tensor:
    """Targets as (N, longest), after checking that everything fits together."""
    steps, batch, classes = log_probs.shape
    _check_counts(log_probs, len(lengths), len(sizes), blank)
    if min(lengths, default=0) < 0 or max(lengths, default=0) > steps:
        raise RuntimeError(f"ctc_loss: expected input_lengths of at most {steps}, got {lengths}")
    if targets.is_complex() or min(sizes, default=0) < 0:
        raise RuntimeError(f"ctc_loss: expected real targets of non-negative lengths, got {targets.dtype} and {sizes}")
    longest = max(sizes, default=0)
    rows = ts.zeros((batch, longest), dtype=ts.int64, device="cpu")
    values = targets.cpu()
    if targets.ndim == 1:
        if targets.numel() != sum(sizes):
            raise RuntimeError(f"ctc_loss: expected {sum(sizes)} targets, got {targets.numel()}")
        starts = [sum(sizes[:k]) for k in range(batch)]
        for row, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            rows[row, :size] = values[start : start + size].long()
    elif targets.ndim == 2 and targets.shape[0] == batch and targets.shape[1] >= longest:
        rows = values[:, :longest].long().contiguous()
    else:
        raise RuntimeError(f"ctc_loss: expected targets ({batch}, at least {longest}), got {tuple(targets.shape)}")
    if rows.numel():
        known = (ts.arange(longest) < ts.tensor(sizes).unsqueeze(1)).cpu()
        rows = ts.where(known, rows, ts.zeros_like(rows))
        if int(rows.min().item()) < 0 or int(rows.max().item()) >= classes:
            raise RuntimeError(f"ctc_loss: expected targets below {classes} and not negative")
    return rows.to(log_probs.device)


class CtcLoss(ts.autograd.Function):
    """Both directions by kernels of the card."""

    @staticmethod
    def forward(
        ctx: Any, log_probs: Tensor, labels: Tensor, lengths: Tensor, sizes: Tensor, blank: int, zero: bool
    ) -> Tensor:
        loss, alphas = ops._ctc_loss(log_probs, labels, lengths, sizes, blank)
        ctx.save_for_backward(log_probs, labels, lengths, sizes, loss, alphas)
        ctx.rest = blank, zero
        return loss  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        found = ops._ctc_loss_backward(grad, *ctx.saved_tensors, *ctx.rest)
        return found, None, None, None, None, None


class _CtcByParts(ts.autograd.Function):
    """Forward and backward variables of the labels with blanks between them."""

    @staticmethod
    def forward(
        ctx: Any, log_probs: Tensor, labels: Tensor, lengths: list[int], sizes: list[int], blank: int, zero: bool
    ) -> Tensor:
        walk = _Walk(log_probs.detach(), labels, lengths, sizes, blank)
        alphas = walk.alphas()
        loss = walk.loss(alphas)
        ctx.save_for_backward(log_probs, alphas, loss, labels)
        ctx.rest = lengths, sizes, blank, zero
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        log_probs, alphas, loss, labels = ctx.saved_tensors
        lengths, sizes, blank, zero = ctx.rest
        walk = _Walk(log_probs.detach(), labels, lengths, sizes, blank)
        with ts.no_grad():
            return walk.gradient(alphas, loss, grad, zero), None, None, None, None, None


class _Walk:
    def __init__(self, log_probs: Tensor, labels: Tensor, lengths: list[int], sizes: list[int], blank: int) -> None:
        self.log_probs = log_probs
        device = log_probs.device
        batch, longest = labels.shape
        self.extended = ts.full((batch, 2 * longest + 1), blank, dtype=ts.int64, device=device)
        self.extended[:, 1::2] = labels
        self.lengths = ts.tensor(lengths, dtype=ts.int64, device=device)
        self.sizes = ts.tensor(sizes, dtype=ts.int64, device=device)
        # From two labels before: past a blank, between different labels.
        self.skips = ts.zeros(self.extended.shape, dtype=ts.bool, device=device)
        if longest > 1:
            self.skips[:, 3::2] = labels[:, 1:] != labels[:, :-1]
        self.none = -float("inf")
        self.emitted = log_probs.gather(2, self.extended.expand(log_probs.shape[0], *self.extended.shape))
        places = ts.arange(2 * longest + 1, device=device)
        self.valid = places <= 2 * self.sizes.unsqueeze(1)

    def _shifted(self, t: Tensor, by: int) -> Tensor:
        return operators()["pad"](t, (by, 0), value=self.none)[:, : t.shape[1]]  # type: ignore[no-any-return]

    def alphas(self) -> Tensor:
        """Log probabilities of all beginnings, (T, N, 2 S + 1)."""
        now = ts.full_like(self.emitted[0], self.none)
        now[:, :2] = self.emitted[0][:, :2]
        now = now.masked_fill(~self.valid, self.none)
        rows = [now]
        for t in range(1, self.emitted.shape[0]):
            skipped = self._shifted(now, 2).masked_fill(~self.skips, self.none)
            now = _log_sum(now, self._shifted(now, 1), skipped) + self.emitted[t]
            rows.append(now.masked_fill(~self.valid, self.none))
        return ts.stack(rows)

    def _ends(self, table: Tensor) -> Tensor:
        """The two last places of the last step of each sequence, (N, 2)."""
        batch = table.shape[1]
        last = (self.lengths - 1).clamp(min=0).reshape(1, batch, 1).expand(1, batch, table.shape[2])
        row = table.gather(0, last).squeeze(0)
        places = ts.stack([2 * self.sizes, (2 * self.sizes - 1).clamp(min=0)], dim=1)
        ends = row.gather(1, places)
        ends[:, 1] = ends[:, 1].masked_fill(self.sizes == 0, self.none)
        return ends

    def loss(self, alphas: Tensor) -> Tensor:
        """Minus the log of the sum over both ends; without steps only an empty target is possible."""
        ends = self._ends(alphas)
        loss = -_log_sum(ends[:, 0], ends[:, 1])
        empty = ts.where(self.sizes == 0, ts.zeros_like(loss), ts.full_like(loss, float("inf")))
        return ts.where(self.lengths == 0, empty, loss)

    def gradient(self, alphas: Tensor, loss: Tensor, grad: Tensor, zero: bool) -> Tensor:
        """``exp(log_probs)`` minus the share of each class in all ways, times the incoming gradient."""
        steps, batch, classes = self.log_probs.shape
        places = ts.arange(self.extended.shape[1], device=loss.device)
        at_end = (places == 2 * self.sizes.unsqueeze(1)) | (places == 2 * self.sizes.unsqueeze(1) - 1)
        now = ts.full_like(self.emitted[0], self.none)
        result = ts.zeros_like(self.log_probs)
        ahead_skips = operators()["pad"](self.skips, (0, 2))[:, 2:]
        for t in reversed(range(steps)):
            back1 = operators()["pad"](now, (0, 1), value=self.none)[:, 1:]
            back2 = operators()["pad"](now, (0, 2), value=self.none)[:, 2:].masked_fill(~ahead_skips, self.none)
            following = _log_sum(now, back1, back2) + self.emitted[t]
            starting = ts.where(at_end, self.emitted[t], ts.full_like(now, self.none))
            is_last = (self.lengths - 1 == t).unsqueeze(1)
            now = ts.where(is_last, starting, following).masked_fill(~self.valid, self.none)
            shares = (alphas[t] + now - self.emitted[t] + loss.unsqueeze(1)).exp().nan_to_num(0.0)
            seen = ts.zeros((batch, classes), dtype=shares.dtype, device=shares.device)
            seen = seen.scatter_add(1, self.extended, shares)
            inside = (self.lengths > t).unsqueeze(1)
            result[t] = ts.where(inside, self.log_probs[t].exp() - seen, ts.zeros_like(seen))
        impossible = loss == float("inf")
        scaled = result * grad.reshape(1, batch, 1)
        lost = ts.zeros_like(scaled) if zero else ts.full_like(scaled, float("nan"))
        known = (ts.arange(steps, device=loss.device).unsqueeze(1) < self.lengths).unsqueeze(2)
        lost = ts.where(known, lost, ts.zeros_like(lost))
        return ts.where(impossible.reshape(1, batch, 1), lost, scaled)


def _log_sum(*terms: Tensor) -> Tensor:
    """``log(sum(exp(terms)))``, also where all are minus infinity."""
    top = terms[0]
    for term in terms[1:]:
        top = ts.maximum(top, term)
    safe = top.masked_fill(top == -float("inf"), 0.0)
    total: Any = 0
    for term in terms:
        total = total + (term - safe).exp()
    return total.log() + safe  # type: ignore[no-any-return]
