"""A gradient scaler whose ranks have different parts of gradients, and skip a step together."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack.amp.grad_scaler import GradScaler
from tesserack.backends._card import CARD
from tesserack.distributed import _collectives as over
from tesserack.distributed._reduce_op import ReduceOp

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(GradScaler):
    """As :class:`tesserack.amp.GradScaler`; a gradient that is infinite or NaN on one rank of ``process_group`` (by
    default all) has every rank skip the step.

    >>> import tesserack as ts
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> layer = ts.nn.Linear(2, 1)
    >>> optimizer = ts.optim.SGD(layer.parameters(), lr=0.1)
    >>> scaler = ShardedGradScaler("cpu", init_scale=4.0)
    >>> scaler.scale(layer(ts.full((1, 2), float("inf"))).sum()).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> scaler.get_scale()
    2.0
    >>> ts.distributed.destroy_process_group()
    """

    def __init__(
        self,
        device: str = CARD,
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: Any = None,
    ) -> None:
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self.process_group = process_group

    def _unscale_grads_(
        self, optimizer: Any, inv_scale: ts.Tensor, found_inf: ts.Tensor, allow_fp16: bool
    ) -> dict[Any, ts.Tensor]:
        here = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        found = self._anywhere(any(bool(flag) for flag in here.values()))
        return {found_inf.device: found_inf + float(found)}

    def _found_inf(self, optimizer: Any) -> bool:  # type: ignore[override]
        return self._anywhere(super()._found_inf(optimizer))

    def _anywhere(self, here: bool) -> bool:
        """Whether it is so on some rank."""
        flag = ts.tensor([1 if here else 0], dtype=ts.uint8)
        over.all_reduce(flag, ReduceOp.MAX, self.process_group)
        return bool(flag.item())
