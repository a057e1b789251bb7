"""One part of a model that was cut into stages: what it is given by the stage before, and what it gives on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed._letters import isend, recv
from tesserack.distributed._world import get_rank, get_world_size
from tesserack.distributed.pipelining._split_backward import SplitBackward
from tesserack.nn.parallel.distributed import DistributedDataParallel

__all__ = ["PipelineStage", "build_stage"]

_DTYPES = [
    ts.float32, ts.float64, ts.float16, ts.bfloat16, ts.int64, ts.int32, ts.int16, ts.int8, ts.uint8, ts.bool,
    ts.complex64, ts.complex128,
]  # fmt: skip
_HEADER = 128  # numbers that describe the tensors of a message
_KINDS = 4  # of messages, each with tags of its own: what describes tensors and they themselves, in each direction


class PipelineStage:
    """A stage of a pipeline of ``num_stages``, on this rank: stage ``i`` is on rank ``i % ranks`` of the group
    (of :class:`ScheduleZBVZeroBubble`, on rank ``i`` or as far from the end).

    The first stage's ``submodule`` is called with the model's positional arguments, each other with what the stage
    before it returned: a tensor or several. Sizes need not be given; microbatches may differ in them.
    """

    def __init__(
        self,
        submodule: Any,
        stage_index: int,
        num_stages: int,
        device: Any,
        input_args: Any = None,
        output_args: Any = None,
        output_grads: Any = None,
        input_grads: Any = None,
        group: Any = None,
        dw_builder: Any = None,
        get_mesh: Any = None,
    ) -> None:
        if not 0 <= stage_index < num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        self.submod, self.stage_index, self.num_stages = submodule, stage_index, num_stages
        self.device, self.group = ts.device(device), group
        self.group_rank, self.group_size = get_rank(group), get_world_size(group)
        if self.group_size > num_stages:
            raise RuntimeError(
                f"Pipeline group size {self.group_size} cannot be larger than number of stages {num_stages}"
            )
        # In turn, or in a V; which of them, the schedule says.
        places = {stage_index % self.group_size}
        if num_stages == 2 * self.group_size:
            places.add(min(stage_index, num_stages - 1 - stage_index))
        if self.group_rank not in places:
            raise ValueError(
                f"PipelineStage: expected stage {stage_index} on rank {stage_index % self.group_size} of the group, "
                f"got rank {self.group_rank}"
            )
        if dw_builder is not None:
            raise NotImplementedError("PipelineStage: expected no dw_builder; the stage splits backward itself")
        self.stage_index_to_group_rank = {k: k % self.group_size for k in range(num_stages)}
        self._beside: dict[Any, Any] = {}  # what goes to another stage of this rank
        self.has_backward = False
        self.clear_runtime_states()

    @property
    def is_first(self) -> bool:
        """Whether the model's arguments come to it."""
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        """Whether the model's results are its."""
        return self.stage_index == self.num_stages - 1

    def clear_runtime_states(self) -> None:
        """Forget the microbatches of a step."""
        self.output_chunks: list[Any] = []
        self._held: dict[int, tuple[list[Tensor], list[Tensor]]] = {}  # inputs and outputs of each microbatch
        self._sent: list[Any] = []
        self._split: dict[int, SplitBackward] = {}  # microbatches whose parameters' gradients are to come

    # --- one microbatch ---------------------------------------------------------------------------------------------

    def forward_one_chunk(self, chunk: int, args: tuple[Any, ...], kwargs: dict[str, Any], save: bool = True) -> Any:
        """Compute a microbatch, with what the stage before sends, or with ``args`` on the first; give it on."""
        given = args if self.is_first else tuple(self._receive(chunk))
        with self._unsynced():
            output = self.submod(*given, **kwargs)
        outputs = _tensors(output, f"stage {self.stage_index}")
        if self.is_last:
            if save:
                self.output_chunks.append(output)
        else:
            self._send(outputs, chunk)
        if self.has_backward:
            self._held[chunk] = ([x for x in given if isinstance(x, Tensor)], outputs)
        return output

    def backward_one_chunk(
        self, chunk: int, loss: Tensor | None = None, last: bool = False, split: bool = False
    ) -> None:
        """The gradients of a microbatch, from its loss on the last stage and else from what the stage after it sends;
        those of the inputs go to the stage before. ``last``: no other follows in this step. ``split``: those of the
        parameters are left to :meth:`backward_weight_one_chunk`, but for modules that reduce them over ranks."""
        inputs, outputs = self._held.pop(chunk)
        if split and not self._reduces():
            return self._backward_inputs(chunk, inputs, outputs, loss)
        with self._synced(last, outputs):
            if loss is not None:
                loss.backward()
            else:
                wanted = [x for x in outputs if x.requires_grad]
                grads = self._receive_grads(chunk, wanted)
                if wanted:
                    ts.autograd.backward(wanted, grads)
        if not self.is_first:
            self._send_grads(chunk, [x for x in inputs if x.requires_grad])

    def _reduces(self) -> bool:
        return isinstance(self.submod, DistributedDataParallel) or hasattr(self.submod, "set_requires_gradient_sync")

    def _backward_inputs(self, chunk: int, inputs: list[Tensor], outputs: list[Tensor], loss: Tensor | None) -> None:
        wanted = [loss] if loss is not None else [x for x in outputs if x.requires_grad]
        grads = None if loss is not None else self._receive_grads(chunk, wanted)
        self._split[chunk] = SplitBackward(wanted, grads)
        given = [] if self.is_first else [x for x in inputs if x.requires_grad]
        parameters = [p for p in self.submod.parameters() if p.requires_grad]
        for x, grad in zip(given, self._split[chunk].of_inputs(given, parameters), strict=True):
            x.grad = grad
        if not self.is_first:
            self._send_grads(chunk, given)

    def backward_weight_one_chunk(self, chunk: int) -> None:
        """The gradients of the parameters, of a microbatch whose backward was split."""
        if (split := self._split.pop(chunk, None)) is not None:
            split.of_parameters()

    @contextlib.contextmanager
    def _unsynced(self) -> Iterator[None]:
        """Within it a data-parallel module keeps its gradients to itself."""
        if isinstance(self.submod, DistributedDataParallel):
            with self.submod.no_sync():
                yield
        else:
            yield

    @contextlib.contextmanager
    def _synced(self, last: bool, outputs: list[Tensor]) -> Iterator[None]:
        """Data parallelism within a stage: gradients go to other ranks with the last microbatch."""
        if isinstance(self.submod, DistributedDataParallel):
            if last:
                self.submod.reducer.prepare(outputs)
        elif hasattr(self.submod, "set_requires_gradient_sync"):  # fully_shard
            self.submod.set_is_last_backward(last)
            self.submod.set_requires_gradient_sync(last)
        yield

    # --- messages ---------------------------------------------------------------------------------------------------

    def _rank_of(self, stage: int) -> int:
        return self.stage_index_to_group_rank[stage]

    def _tag(self, receiver: int, chunk: int, kind: int) -> int:
        return (chunk * self.num_stages + receiver) * _KINDS + kind

    def _post(self, tensor: Tensor, stage: int, chunk: int, kind: int) -> None:
        dense = tensor.detach().contiguous()
        tag = self._tag(stage, chunk, kind)
        if self._rank_of(stage) == self.group_rank:
            self._beside.setdefault(tag, []).append(dense)
            return
        self._sent.append((isend(dense, group=self.group, group_dst=self._rank_of(stage), tag=tag), dense))

    def _take(self, tensor: Tensor, stage: int, chunk: int, kind: int) -> Tensor:
        tag = self._tag(self.stage_index, chunk, kind)
        if self._rank_of(stage) == self.group_rank:
            return tensor.copy_(self._beside[tag].pop(0))
        recv(tensor, group=self.group, group_src=self._rank_of(stage), tag=tag)
        return tensor

    def _send(self, outputs: list[Tensor], chunk: int) -> None:
        to = self.stage_index + 1
        self._post(_described(outputs), to, chunk, 0)
        for output in outputs:
            self._post(output, to, chunk, 1)

    def _receive(self, chunk: int) -> list[Tensor]:
        before = self.stage_index - 1
        header = self._take(ts.zeros(_HEADER, dtype=ts.int64), before, chunk, 0).tolist()
        given = []
        for shape, dtype, wanted in _outlines(header):
            tensor = self._take(ts.empty(shape, dtype=dtype, device=self.device), before, chunk, 1)
            given.append(tensor.requires_grad_(wanted and self.has_backward))
        return given

    def _send_grads(self, chunk: int, inputs: list[Tensor]) -> None:
        for x in inputs:
            grad = ts.zeros_like(x) if x.grad is None else x.grad
            self._post(grad, self.stage_index - 1, chunk, 3)

    def _receive_grads(self, chunk: int, outputs: list[Tensor]) -> list[Tensor]:
        after = self.stage_index + 1
        return [self._take(ts.empty_like(x, memory_format=ts.contiguous_format), after, chunk, 3) for x in outputs]

    def finish(self) -> None:
        """Wait until everything that was sent has left."""
        for work, _ in self._sent:
            if work is not None:
                work.wait()
        self._sent.clear()


def _tensors(output: Any, who: str) -> list[Tensor]:
    found = list(output) if isinstance(output, (list, tuple)) else [output]
    for each in found:
        if not isinstance(each, Tensor):
            raise TypeError(f"{who}: expected a tensor or a tuple of tensors to be returned, got {type(each).__name__}")
    return found


def _described(tensors: Sequence[Tensor]) -> Tensor:
    """How many, and of each the dtype, whether it requires a gradient, and the sizes."""
    numbers = [len(tensors)]
    for x in tensors:
        if x.dtype not in _DTYPES:
            raise TypeError(f"PipelineStage: expected a tensor of a dtype that can be sent, got {x.dtype}")
        numbers += [_DTYPES.index(x.dtype), int(x.requires_grad), x.ndim, *x.shape]
    if len(numbers) > _HEADER:
        raise RuntimeError(f"PipelineStage: expected fewer tensors between stages, got {len(tensors)}")
    return ts.tensor(numbers + [0] * (_HEADER - len(numbers)), dtype=ts.int64)


def _outlines(numbers: list[int]) -> Iterator[tuple[list[int], Any, bool]]:
    at = 1
    for _ in range(numbers[0]):
        dtype, wanted, ndim = numbers[at : at + 3]
        yield numbers[at + 3 : at + 3 + ndim], _DTYPES[dtype], bool(wanted)
        at += 3 + ndim


def build_stage(stage_module: Any, stage_index: int, pipe_info: Any, device: Any, group: Any = None) -> PipelineStage:
    """A stage of what :func:`pipeline` has cut: ``pipe_info`` is ``pipe.info()``."""
    return PipelineStage(stage_module, stage_index, pipe_info.num_stages, device, group=group)
