"""Schedules that fill the pipeline's bubbles with gradients of parameters.

Qi et al., "Zero Bubble Pipeline Parallelism", 2024.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tesserack.distributed.pipelining._schedules import IN, F, PipelineScheduleMulti, W, _Action

__all__ = ["ScheduleInterleavedZeroBubble", "ScheduleZBVZeroBubble", "stages_in_v"]


def stages_in_v(who: str, rank: int, ranks: int, count: int) -> list[int]:
    """A rank's two stages, as far from the beginning as from the end. ``ValueError`` for another number of stages."""
    if count != 2 * ranks:
        raise ValueError(f"{who} requires exactly 2 stages per rank, but got {count} stages on {ranks} ranks.")
    return [rank, count - 1 - rank]


class ScheduleInterleavedZeroBubble(PipelineScheduleMulti):
    """As :class:`ScheduleInterleaved1F1B`, but a backward is in two: the gradients of inputs go on at once, those of
    parameters fill what would be a wait (the paper's ZB-H1, over several stages on each rank)."""

    def _order(self, rank: int) -> list[_Action]:
        ranks, local, count = self.pp_group_size, self.n_local_stages, self._n_microbatches
        rounds = max(1, count // ranks)
        if count % rounds:
            raise ValueError(
                "Zero bubble requires the number of microbatches to be a multiple of the number of rounds "
                f"({rounds}), but got {count}."
            )
        in_round, total = count // rounds, local * count
        warm = min((local - 1) * in_round + ranks - 1 - rank, total)
        seen: Counter[tuple[int, str]] = Counter()

        def action(number: int, kind: str) -> _Action:
            turn = number // in_round % local
            stage = (turn if kind == F else local - 1 - turn) * ranks + rank
            seen[stage, kind] += 1
            return _Action(stage, kind, seen[stage, kind] - 1)

        order = [action(number, F) for number in range(warm)]
        for number in range(total):
            if warm + number < total:
                order.append(action(warm + number, F))
            order.append(action(number, IN))
            if number >= rank:  # a later rank has waited less, and has more to catch up with
                order.append(action(number - rank, W))
        return order + [action(number, W) for number in range(max(0, total - rank), total)]


class ScheduleZBVZeroBubble(PipelineScheduleMulti):
    """Two stages on each rank, in a V: rank ``r`` has stage ``r`` and the one as far from the end, so that the first
    rank has the loss, and no rank waits once all are at work (the paper's ZB-V)."""

    def _stages_of(self, rank: int, ranks: int, count: int) -> list[int]:
        return stages_in_v("ZBV", rank, ranks, count)

    def _order(self, rank: int) -> list[_Action]:
        return [action for action in self._of_full(rank) if action.microbatch_index < self._n_microbatches]

    def _of_full(self, rank: int) -> Iterator[_Action]:
        """Of at least as many microbatches as fill the pipeline."""
        ranks = self.pp_group_size
        count = max(2 * ranks - 1, self._n_microbatches)
        there, back = rank, self._num_stages - 1 - rank
        seen: Counter[tuple[int, str]] = Counter()

        def do(stage: int, *kinds: str) -> Iterator[_Action]:
            for kind in kinds:
                seen[stage, kind] += 1
                yield _Action(stage, kind, seen[stage, kind] - 1)

        for _ in range(2 * (ranks - rank) - 1):
            yield from do(there, F)
        for _ in range(rank):
            yield from do(back, F)
            yield from do(there, F)
        for _ in range(ranks - rank):
            yield from do(back, F, IN, W)
        while seen[back, F] < seen[there, F] or seen[there, F] < count:
            if seen[there, F] < count:
                yield from do(there, F)
            yield from do(there, IN, W)
            yield from do(back, F, IN, W)
        for _ in range(rank):
            yield from do(there, IN)
            yield from do(back, IN)
        for _ in range(ranks - rank):
            yield from do(there, IN, W)
        for stage in (back, there):
            while seen[stage, W] < seen[stage, IN]:
                yield from do(stage, W)
