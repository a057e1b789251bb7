"""Gradients sent as products of thin matrices, what is lost being added to the next.

Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization", 2019.
"""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack import distributed as dist
from tesserack.distributed.algorithms.ddp_comm_hooks import default_hooks
from tesserack.utils.futures import Future

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]


class PowerSGDState:
    """What the hook keeps between iterations: errors and, with ``warm_start``, the last matrices.

    The first ``start_powerSGD_iter`` iterations send whole gradients, and so do tensors that would not shrink by
    ``min_compression_rate``.
    """

    def __init__(
        self,
        process_group: Any = None,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, "
                f"got {start_powerSGD_iter}"
            )
        self.process_group = process_group
        self.matrix_approximation_rank, self.start_powerSGD_iter = matrix_approximation_rank, start_powerSGD_iter
        self.min_compression_rate, self.use_error_feedback = min_compression_rate, use_error_feedback
        self.warm_start, self.orthogonalization_epsilon = warm_start, orthogonalization_epsilon
        self.random_seed = random_seed
        self.iter = 0
        self.error_dict: dict[int, Tensor] = {}
        self.q_memory_dict: dict[tuple[int, int], Tensor] = {}
        self._generator = ts.Generator().manual_seed(random_seed)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("process_group", "_generator")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.process_group = None
        self._generator = ts.Generator().manual_seed(self.random_seed)


def _orthogonal(matrix: Tensor, epsilon: float) -> Tensor:
    """Gram and Schmidt's columns; a column that vanishes stays zero."""
    columns: list[Tensor] = []
    for column in matrix.unbind(1):
        for before in columns:
            column = column - (before * column).sum() * before
        norm = column.norm() + epsilon
        columns.append(column / norm if norm.item() else column)
    return ts.stack(columns, dim=1)


def _average(tensor: Tensor, group: Any) -> None:
    dist.all_reduce(tensor, group=group)
    tensor.div_(dist.get_world_size(group))


def _shrinks(state: PowerSGDState, rows: int, columns: int) -> bool:
    rank = min(rows, columns, state.matrix_approximation_rank)
    return rank * (rows + columns) * state.min_compression_rate < rows * columns


def powerSGD_hook(state: PowerSGDState, bucket: Any) -> Any:
    """Average matrices by their rank-``matrix_approximation_rank`` approximation, vectors as they are."""
    group = default_hooks._group(state.process_group)
    if state.iter < state.start_powerSGD_iter:
        if bucket.is_last():
            state.iter += 1
        return default_hooks.allreduce_hook(group, bucket)
    buffer, index = bucket.buffer(), bucket.index()
    whole = buffer.clone()
    if state.use_error_feedback:
        kept = state.error_dict.setdefault(index, ts.zeros_like(buffer))
        buffer.add_(kept)
        whole = buffer.clone()
    plain: list[Tensor] = []
    for number, grad in enumerate(bucket.gradients()):
        matrix = grad.reshape(grad.shape[0], -1) if grad.ndim > 1 else None
        if matrix is None or not _shrinks(state, *matrix.shape):
            plain.append(grad)
            continue
        grad.copy_(_approximated(state, matrix, (index, number), group).view(grad.shape))
    if plain:
        joined = ts.cat([g.reshape(-1) for g in plain])
        _average(joined, group)
        for grad, part in zip(plain, joined.split([g.numel() for g in plain]), strict=True):
            grad.copy_(part.view(grad.shape))
    if state.use_error_feedback:
        state.error_dict[index] = whole.sub_(buffer)
        if plain:  # those lose nothing
            for grad in plain:
                start = grad.storage_offset() - buffer.storage_offset()
                state.error_dict[index][start : start + grad.numel()] = 0
    if bucket.is_last():
        state.iter += 1
    future: Any = Future()
    future.set_result(buffer)
    return future


def _approximated(state: PowerSGDState, matrix: Tensor, key: tuple[int, int], group: Any) -> Tensor:
    rank = min(*matrix.shape, state.matrix_approximation_rank)
    q = state.q_memory_dict.get(key) if state.warm_start else None
    if q is None:
        q = ts.randn(matrix.shape[1], rank, generator=state._generator).to(matrix)
    p = matrix @ _orthogonal(q, state.orthogonalization_epsilon)
    _average(p, group)
    p = _orthogonal(p, state.orthogonalization_epsilon)
    q = matrix.t() @ p
    _average(q, group)
    if state.warm_start:
        state.q_memory_dict[key] = q
    return p @ q.t()


def batched_powerSGD_hook(state: PowerSGDState, bucket: Any) -> Any:
    """The same of a bucket as one square matrix: quicker, and less exact."""
    group = default_hooks._group(state.process_group)
    if state.iter < state.start_powerSGD_iter:
        if bucket.is_last():
            state.iter += 1
        return default_hooks.allreduce_hook(group, bucket)
    buffer = bucket.buffer()
    side = int(buffer.numel() ** 0.5 + 0.999999)
    padded = ts.zeros(side * side, dtype=buffer.dtype, device=buffer.device)
    padded[: buffer.numel()] = buffer
    if state.use_error_feedback and bucket.index() in state.error_dict:
        padded.add_(state.error_dict[bucket.index()])
    square = padded.view(side, side)
    near = _approximated(state, square, (bucket.index(), 0), group)
    if state.use_error_feedback:
        state.error_dict[bucket.index()] = (square - near).reshape(-1)
    buffer.copy_(near.reshape(-1)[: buffer.numel()])
    if bucket.is_last():
        state.iter += 1
    future: Any = Future()
    future.set_result(buffer)
    return future
