"""Steps of optimizers: every rank steps its part of each parameter, with the gradient brought to where that lies."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.distributed.tensor._api import DTensor
from tesserack.distributed.tensor._call import handler
from tesserack.distributed.tensor._dispatch import local_as


def _local(x: Any, like: Any) -> Any:
    if not isinstance(x, DTensor):
        if isinstance(like, DTensor) and x.ndim:
            raise RuntimeError(
                f"optimizer step: expected gradients and states of DTensor parameters to be DTensors, got a tensor of "
                f"shape {tuple(x.shape)}"
            )
        return x
    if not isinstance(like, DTensor):
        return x.full_tensor()
    return local_as(x, like.placements)


@handler("sgd_step_", "adam_step_", "_optimizer_step_")
def _step(func: Any, args: Any, kwargs: Any) -> None:
    lists = [k for k, a in enumerate(args) if isinstance(a, (list, tuple)) and a and isinstance(a[0], Tensor)]
    params = args[lists[0]]
    given = list(args)
    for k in lists:
        given[k] = [_local(x, p) for x, p in zip(args[k], params, strict=True)]
    func(*given, **kwargs)
