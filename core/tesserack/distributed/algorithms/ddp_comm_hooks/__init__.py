"""Hooks that say how buckets of gradients are reduced."""

from __future__ import annotations

from enum import Enum
from typing import Any

from tesserack.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
)

# The names under which PyTorch has these modules here.
debugging, default, powerSGD, quantization = debugging_hooks, default_hooks, powerSGD_hook, quantization_hooks

__all__ = [
    "DDPCommHookType",
    "debugging",
    "debugging_hooks",
    "default",
    "default_hooks",
    "post_localSGD_hook",
    "powerSGD",
    "powerSGD_hook",
    "quantization",
    "quantization_hooks",
    "register_ddp_comm_hook",
]


class _Registered:
    """``value(model=..., state=process_group)`` of a kind of hook."""

    def __init__(self, hook: Any, matrix_approximation_rank: int | None = None) -> None:
        self._hook, self._rank = hook, matrix_approximation_rank

    def __call__(self, model: Any, state: Any = None, start_powerSGD_iter: int = 1000) -> None:
        if self._rank is not None:
            state = powerSGD_hook.PowerSGDState(
                state, matrix_approximation_rank=self._rank, start_powerSGD_iter=start_powerSGD_iter
            )
        model.register_comm_hook(state, self._hook)


class DDPCommHookType(Enum):
    """The hooks by name, for :func:`register_ddp_comm_hook`."""

    ALLREDUCE = _Registered(default_hooks.allreduce_hook)
    FP16_COMPRESS = _Registered(default_hooks.fp16_compress_hook)
    BF16_COMPRESS = _Registered(default_hooks.bf16_compress_hook)
    QUANTIZE_PER_TENSOR = _Registered(quantization_hooks.quantization_pertensor_hook)
    QUANTIZE_PER_CHANNEL = _Registered(quantization_hooks.quantization_perchannel_hook)
    POWER_SGD = _Registered(powerSGD_hook.powerSGD_hook, 1)
    POWER_SGD_RANK2 = _Registered(powerSGD_hook.powerSGD_hook, 2)
    BATCHED_POWER_SGD = _Registered(powerSGD_hook.batched_powerSGD_hook, 1)
    BATCHED_POWER_SGD_RANK2 = _Registered(powerSGD_hook.batched_powerSGD_hook, 2)
    NOOP = _Registered(debugging_hooks.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Have a ``DistributedDataParallel`` reduce its buckets by a hook of this kind; ``state`` is a process group."""
    comm_hook_type.value(model=model, state=state)
