"""Parts of loss scaling, by the names that PyTorch shows at its top level: scalers of packages are made of them."""

from __future__ import annotations

from collections.abc import Sequence

import tesserack as ts
from tesserack import Tensor

__all__: list[str] = []


def _one(op: str, name: str, value: Tensor, dtype: ts.dtype) -> None:
    if value.numel() != 1 or value.dtype != dtype:
        raise RuntimeError(f"{op}: expected {name} of one element of {dtype}, got {value.dtype}, {tuple(value.shape)}")


def _amp_foreach_non_finite_check_and_unscale_(self: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiply tensors by ``inv_scale`` in place; 1 into ``found_inf`` where an element was infinite or NaN.

    >>> import tesserack as ts
    >>> grad, found = ts.tensor([2.0, float("inf")]), ts.zeros(1)
    >>> _amp_foreach_non_finite_check_and_unscale_([grad], found, ts.tensor(0.5))
    >>> grad.tolist(), found.item()
    ([1.0, inf], 1.0)
    """
    op = "_amp_foreach_non_finite_check_and_unscale_"
    _one(op, "found_inf", found_inf, ts.float32)
    _one(op, "inv_scale", inv_scale, ts.float32)
    for tensor in self:
        if not tensor.is_floating_point():
            raise RuntimeError(f"{op}: expected tensors of floating point, got {tensor.dtype}")
    factor = float(inv_scale)  # in float32, which is finer than a gradient's dtype may be
    with ts.no_grad():
        for tensor in self:
            found_inf.masked_fill_(~tensor.isfinite().all(), 1.0)
            tensor.mul_(factor)


def _amp_update_scale_(
    self: Tensor,
    growth_tracker: Tensor,
    found_inf: Tensor,
    scale_growth_factor: float,
    scale_backoff_factor: float,
    growth_interval: int,
) -> Tensor:
    """The next scale, in place: less after an infinite gradient, more after ``growth_interval`` steps without; not
    where it would overflow."""
    op = "_amp_update_scale_"
    _one(op, "growth_tracker", growth_tracker, ts.int32)
    _one(op, "found_inf", found_inf, ts.float32)
    _one(op, "the scale", self, ts.float32)
    with ts.no_grad():
        if float(found_inf):
            self.mul_(scale_backoff_factor)
            growth_tracker.zero_()
        elif int(growth_tracker) + 1 == growth_interval:
            grown = self * scale_growth_factor
            if bool(grown.isfinite()):
                self.copy_(grown)
            growth_tracker.zero_()
        else:
            growth_tracker.add_(1)
    return self
