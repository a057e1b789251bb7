"""DualPipeV: two stages on each rank in a V, microbatches forward and backward in turn from both ends at once.

DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, and the schedule that was published with it.
"""

from __future__ import annotations

from collections import Counter, deque

from tesserack.distributed.pipelining._schedules import IN, B, F, PipelineScheduleMulti, W, _Action
from tesserack.distributed.pipelining._zero_bubble import stages_in_v

__all__ = ["ScheduleDualPipeV"]


class ScheduleDualPipeV(PipelineScheduleMulti):
    """Two stages on each rank, in a V as with :class:`ScheduleZBVZeroBubble`; in the middle of a step each rank has a
    forward of one stage beside a backward of the other. ``ValueError`` for fewer microbatches than stages."""

    def _stages_of(self, rank: int, ranks: int, count: int) -> list[int]:
        return stages_in_v("DualPipeV", rank, ranks, count)

    def _order(self, rank: int) -> list[_Action]:
        if self._n_microbatches < self._num_stages:
            raise ValueError(
                "DualPipeV requires at least as many microbatches as stages, but got "
                f"{self._n_microbatches} microbatches and {self._num_stages} stages."
            )
        return _Order(rank, self.pp_group_size, self._n_microbatches).actions


class _Order:
    """What a rank does: on its stage of the way there, and on that of the way back."""

    def __init__(self, rank: int, ranks: int, count: int) -> None:
        self.actions: list[_Action] = []
        self._seen: Counter[tuple[int, str]] = Counter()
        self._weights: deque[tuple[int, int]] = deque()  # stages and microbatches whose parameters' gradients are due
        there, back, later = rank, 2 * ranks - 1 - rank, ranks - 1 - rank
        for _ in range(2 * later):
            self._do(there, F)
        for _ in range(rank + 1):
            self._do(there, F)
            self._do(back, F)
        for _ in range(later):
            self._do(back, IN)
            self._weight()
            self._do(back, F)
        for _ in range(count - 2 * ranks + rank + 1):
            self._do(there, F)
            self._do(back, B)
            self._do(back, F)
            self._do(there, B)
        for _ in range(later):
            self._do(back, B)
            self._do(back, F)
            self._do(there, B)
        # From the middle of these on, gradients of parameters wait: they fill what would be waits of the ranks before.
        for k in range(2 * (rank + 1)):
            self._do(there if k % 2 else back, IN if k > rank else B)
        for _ in range(later):
            self._weight()
            self._do(there, IN)
        while self._weights:
            self._weight()

    def _do(self, stage: int, kind: str) -> None:
        counted = IN if kind == B else kind
        chunk = self._seen[stage, counted]
        self._seen[stage, counted] += 1
        self.actions.append(_Action(stage, kind, chunk))
        if kind == IN:
            self._weights.append((stage, chunk))

    def _weight(self) -> None:
        stage, chunk = self._weights.popleft()
        self.actions.append(_Action(stage, W, chunk))
