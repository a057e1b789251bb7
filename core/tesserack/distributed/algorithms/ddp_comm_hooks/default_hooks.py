"""Averages, whole or in half types: ``torch.distributed.algorithms.ddp_comm_hooks.default_hooks``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack import distributed as dist
from tesserack.utils.futures import Future

__all__ = [
    "allreduce_hook",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
    "noop_hook",
]

Hook = Callable[[Any, Any], Any]


def _group(process_group: Any) -> Any:
    return process_group if process_group is not None else dist.group.WORLD


def _averaged(tensor: Tensor, group: Any) -> Any:
    tensor.div_(dist.get_world_size(group))
    work = dist.all_reduce(tensor, group=group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda future: future.value()[0])


def allreduce_hook(process_group: Any, bucket: Any) -> Any:
    """The average over the ranks, as without a hook."""
    return _averaged(bucket.buffer(), _group(process_group))


def compressed(process_group: Any, bucket: Any, dtype: Any) -> Any:
    group, buffer = _group(process_group), bucket.buffer()
    small = buffer.to(dtype).div_(dist.get_world_size(group))
    work = dist.all_reduce(small, group=group, async_op=True)
    assert work is not None

    def widen(future: Any) -> Tensor:
        buffer.copy_(future.value()[0])
        return buffer  # type: ignore[no-any-return]

    return work.get_future().then(widen)


def fp16_compress_hook(process_group: Any, bucket: Any) -> Any:
    """The average of gradients sent in float16."""
    return compressed(process_group, bucket, ts.float16)


def bf16_compress_hook(process_group: Any, bucket: Any) -> Any:
    """The average of gradients sent in bfloat16."""
    return compressed(process_group, bucket, ts.bfloat16)


def _wrapper(hook: Hook, dtype: Any) -> Hook:
    def wrapped(state: Any, bucket: Any) -> Any:
        before = bucket.buffer()
        bucket.set_buffer(before.to(dtype))

        def widen(future: Any) -> Tensor:
            value = future.value()
            value = value[0] if isinstance(value, (list, tuple)) else value
            before.copy_(value)
            bucket.set_buffer(before)
            return before  # type: ignore[no-any-return]

        return hook(state, bucket).then(widen)

    return wrapped


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """Another hook, which sees the gradients in float16."""
    return _wrapper(hook, ts.float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """Another hook, which sees the gradients in bfloat16."""
    return _wrapper(hook, ts.bfloat16)


def noop_hook(_: Any, bucket: Any) -> Any:
    """Gradients stay each rank's own."""
    future: Any = Future()
    future.set_result(bucket.buffer())
    return future
