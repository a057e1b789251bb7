"""In which order the stages of a pipeline compute microbatches forward and backward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed.pipelining.microbatch import (
    TensorChunkSpec,
    merge_chunks,
    split_args_kwargs_into_chunks,
    split_tensor,
)
from tesserack.distributed.pipelining.stage import PipelineStage

__all__ = [
    "PipelineScheduleMulti",
    "PipelineScheduleSingle",
    "Schedule1F1B",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleLoopedBFS",
]

# Forward; backward, whole or in two: gradients of inputs, and of parameters.
F, B, IN, W = "F", "B", "I", "W"


class _Action(NamedTuple):
    """One microbatch through one stage, forward or backward."""

    stage_index: int
    computation_type: str
    microbatch_index: int

    def __repr__(self) -> str:
        return f"{self.stage_index}{self.computation_type}{self.microbatch_index}"


class _PipelineSchedule(ABC):
    """What schedules share: a step over a whole batch.

    ``loss_fn(output, target)`` is computed on the last stage for each microbatch; with ``scale_grads`` the gradients
    are those of its average over the microbatches, else of its sum.
    """

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: tuple[TensorChunkSpec, ...] | None = None,
        kwargs_chunk_spec: dict[str, TensorChunkSpec] | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        if n_microbatches < 1:
            raise ValueError(f"{type(self).__name__}: expected at least one microbatch, got {n_microbatches}")
        self._stages, self._n_microbatches, self._loss_fn = list(stages), n_microbatches, loss_fn
        self._args_chunk_spec, self._kwargs_chunk_spec = args_chunk_spec, kwargs_chunk_spec
        self._output_merge_spec, self.scale_grads = output_merge_spec, scale_grads
        self._has_backward = loss_fn is not None
        self.pp_group_size, self.rank = stages[0].group_size, stages[0].group_rank
        self._num_stages = stages[0].num_stages
        self.pipeline_order = {rank: self._order(rank) for rank in range(self.pp_group_size)}

    def _stages_of_rank(self, rank: int) -> list[int]:
        """A rank's stages."""
        return list(range(rank, self._num_stages, self.pp_group_size))

    @abstractmethod
    def _order(self, rank: int) -> list[_Action]:
        """What a rank does, in order."""

    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Tensor] | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """A whole batch: positional arguments on the rank of the first stage, ``target`` on that of the last, keywords
        wherever a stage takes them. The losses of the microbatches come in ``losses``, and the outputs are returned, on
        the rank of the last stage. Gradients are added to the parameters'."""
        if self._has_backward and not ts.is_grad_enabled():
            raise RuntimeError(
                "step() requires gradients to be enabled for backward computation; it should not be used under "
                "torch.no_grad() context. Please call eval() instead."
            )
        if losses is not None and not isinstance(losses, list):
            raise TypeError(f"losses must be a list but got a {type(losses)}")
        run = _Run(self, args, kwargs, target, loss_kwargs or {})
        for action in self.pipeline_order[self.rank]:
            run.do(action, save=return_outputs)
        for stage in self._stages:
            stage.finish()
        last = next((stage for stage in self._stages if stage.is_last), None)
        if last is not None and losses is not None and self._loss_fn is not None:
            losses[:] = [run.losses[mb] for mb in range(self._n_microbatches)]
        outputs = None if last is None or not return_outputs else last.output_chunks
        result = None if outputs is None else merge_chunks(outputs, self._output_merge_spec)
        for stage in self._stages:
            stage.clear_runtime_states()
        return result

    def eval(self, *args: Any, target: Any = None, losses: list[Tensor] | None = None, **kwargs: Any) -> Any:
        """A whole batch forward alone."""
        before, self._has_backward = self._has_backward, False
        try:
            return self.step(*args, target=target, losses=losses, **kwargs)
        finally:
            self._has_backward = before


class _Run:
    """One step: the microbatches, and what became of them."""

    def __init__(self, schedule: _PipelineSchedule, args: Any, kwargs: Any, target: Any, loss_kwargs: Any) -> None:
        count = schedule._n_microbatches
        self.schedule, self.loss_kwargs = schedule, loss_kwargs
        self.args, self.kwargs = split_args_kwargs_into_chunks(
            args, kwargs, count, schedule._args_chunk_spec, schedule._kwargs_chunk_spec
        )
        self.targets = None if target is None else split_tensor(target, TensorChunkSpec(0), count)
        self.stages = {stage.stage_index: stage for stage in schedule._stages}
        self.losses: dict[int, Tensor] = {}
        backwards = (a for a in schedule.pipeline_order[schedule.rank] if a.computation_type in (B, IN))
        self.left = Counter(a.stage_index for a in backwards)
        ranks = {k: r for r in range(schedule.pp_group_size) for k in schedule._stages_of_rank(r)}
        beside: dict[Any, Any] = {}
        for stage in schedule._stages:
            stage.stage_index_to_group_rank, stage._beside = ranks, beside
            stage.has_backward = schedule._has_backward
            stage.clear_runtime_states()

    def do(self, action: _Action, save: bool) -> None:
        """One action of this rank."""
        stage, chunk = self.stages[action.stage_index], action.microbatch_index
        if action.computation_type == F:
            output = stage.forward_one_chunk(chunk, self.args[chunk], self.kwargs[chunk], save)
            if stage.is_last and self.schedule._loss_fn is not None and self.targets is not None:
                self.losses[chunk] = self.schedule._loss_fn(output, self.targets[chunk], **self.loss_kwargs)
            elif stage.is_last and self.schedule._has_backward:
                raise ValueError(
                    f"{type(self.schedule).__name__}: expected target on the rank of the last stage, got None"
                )
        elif action.computation_type == W:
            if self.schedule._has_backward:
                stage.backward_weight_one_chunk(chunk)
        elif self.schedule._has_backward:
            self.left[action.stage_index] -= 1
            loss, last = self._scaled(chunk) if stage.is_last else None, not self.left[action.stage_index]
            stage.backward_one_chunk(chunk, loss, last, split=action.computation_type == IN)

    def _scaled(self, chunk: int) -> Tensor:
        loss = self.losses[chunk]
        # What is kept of it holds no graph.
        self.losses[chunk] = loss.detach()
        return loss / self.schedule._n_microbatches if self.schedule.scale_grads else loss


class PipelineScheduleSingle(_PipelineSchedule):
    """A schedule with one stage on each rank."""

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: tuple[TensorChunkSpec, ...] | None = None,
        kwargs_chunk_spec: dict[str, TensorChunkSpec] | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        if stage.num_stages != stage.group_size:
            raise ValueError(
                f"{type(self).__name__}: expected one stage on each of {stage.group_size} ranks, got "
                f"{stage.num_stages} stages; try ScheduleInterleaved1F1B"
            )
        super().__init__(
            [stage], n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads
        )
        self._stage = stage


class _ScheduleForwardOnly(PipelineScheduleSingle):
    """Microbatches one after another, forward alone."""

    def _order(self, rank: int) -> list[_Action]:
        return [_Action(rank, F, mb) for mb in range(self._n_microbatches)]


class ScheduleGPipe(PipelineScheduleSingle):
    """All microbatches forward, then all backward (Huang et al., "GPipe", 2019).

    >>> import tesserack as ts
    >>> from tesserack.distributed.pipelining import PipelineStage
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> stage = PipelineStage(ts.nn.Linear(2, 1), 0, 1, "cpu")
    >>> schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=ts.nn.functional.mse_loss)
    >>> losses = []
    >>> tuple(schedule.step(ts.ones(4, 2), target=ts.ones(4, 1), losses=losses).shape), len(losses)
    ((4, 1), 2)
    >>> ts.distributed.destroy_process_group()
    """

    def _order(self, rank: int) -> list[_Action]:
        chunks = range(self._n_microbatches)
        return [_Action(rank, kind, mb) for kind in (F, B) for mb in chunks]


class Schedule1F1B(PipelineScheduleSingle):
    """After as many forwards as there are stages to come, one forward and one backward in turn: no more microbatches
    are held than there are stages (Narayanan et al., "PipeDream", 2019)."""

    def _order(self, rank: int) -> list[_Action]:
        count = self._n_microbatches
        warm = min(count, self.pp_group_size - rank)
        order = [_Action(rank, F, mb) for mb in range(warm)]
        for mb in range(count):
            order.append(_Action(rank, B, mb))
            if warm + mb < count:
                order.append(_Action(rank, F, warm + mb))
        return order


class PipelineScheduleMulti(_PipelineSchedule):
    """A schedule with several stages on each rank: rank ``r`` has stages ``r``, ``r + ranks``, and so on."""

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: tuple[TensorChunkSpec, ...] | None = None,
        kwargs_chunk_spec: dict[str, TensorChunkSpec] | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        ranks, count = stages[0].group_size, stages[0].num_stages
        expected = self._stages_of(stages[0].group_rank, ranks, count)
        if [stage.stage_index for stage in stages] != expected or count % ranks:
            raise ValueError(
                f"{type(self).__name__}: expected the stages {expected} of {count} on rank {stages[0].group_rank} of "
                f"{ranks}, as many on each, got {[stage.stage_index for stage in stages]}"
            )
        self.n_local_stages = len(stages)
        super().__init__(
            stages, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads
        )

    def _stages_of(self, rank: int, ranks: int, count: int) -> list[int]:
        """The stages that a rank has of some number."""
        return list(range(rank, count, ranks))

    def _stages_of_rank(self, rank: int) -> list[int]:
        return self._stages_of(rank, self.pp_group_size, self._num_stages)


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """All microbatches through a rank's first stage, then through its next; backward the other way round (Lamy-Poirier,
    "Breadth-First Pipeline Parallelism", 2022)."""

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        super().__init__(stages, n_microbatches, loss_fn, output_merge_spec=output_merge_spec, scale_grads=scale_grads)

    def _order(self, rank: int) -> list[_Action]:
        mine, chunks = range(rank, self._num_stages, self.pp_group_size), range(self._n_microbatches)
        forward = [_Action(stage, F, mb) for stage in mine for mb in chunks]
        return forward + [_Action(stage, B, mb) for stage in reversed(mine) for mb in reversed(chunks)]


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    """One forward and one backward in turn over several stages on each rank, which fills the pipeline sooner (Narayanan
    et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021)."""

    def _order(self, rank: int) -> list[_Action]:
        ranks, local, count = self.pp_group_size, self.n_local_stages, self._n_microbatches
        rounds = max(1, count // ranks)
        if count % rounds:
            raise ValueError(
                "Interleaved 1F1B requires the number of microbatches to be a multiple of the number of rounds "
                f"({rounds}), but got {count}."
            )
        in_round, total = count // rounds, local * count
        warm = min((local - 1) * in_round + 2 * (ranks - 1 - rank), total)
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
            order.append(action(number, B))
        return order
