"""Models cut into stages: what is refused, and how; programs of several ranks are in ``test_dtensor.py``."""

from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.distributed import pipelining
from tesserack.distributed.pipelining.microbatch import (
    TensorChunkSpec,
    merge_chunks,
    split_args_kwargs_into_chunks,
    sum_reducer,
)
from tesserack.distributed.pipelining.schedules import get_schedule_class


@pytest.fixture
def alone() -> Any:
    """A world of one rank."""
    ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    yield ts.distributed
    ts.distributed.destroy_process_group()


class Marked(nn.Module):
    """Says itself where its stages begin; a value goes around the second."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(3, 3) for _ in range(3))

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        first = self.one(x)
        pipelining.pipe_split()
        second = self.two(first).relu()
        pipelining.pipe_split()
        return self.three(second) + first


def test_marks_in_a_forward_cut_it() -> None:
    model, x = Marked(), ts.randn(4, 3)
    pipe = pipelining.pipeline(model, (x,))
    names = [[name for name, _ in pipe.get_stage_module(k).named_parameters()] for k in range(pipe.num_stages)]
    assert names == [[f"{part}.weight", f"{part}.bias"] for part in ("one", "two", "three")]
    assert ts.equal(pipe(x), model(x))


def test_a_policy_may_put_the_marks() -> None:
    def after_relu(module: Any) -> Any:
        for node in list(module.graph.nodes):
            if node.op == "call_module" and isinstance(module.get_submodule(node.target), nn.ReLU):
                with module.graph.inserting_after(node):
                    module.graph.call_function(pipelining.pipe_split)
        return module

    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    pipe = pipelining.pipeline(model, (ts.ones(1, 3),), split_policy=after_relu)
    assert pipe.num_stages == 2 and ts.equal(pipe(ts.ones(1, 3)), model(ts.ones(1, 3)))


def test_what_cannot_be_cut_is_refused() -> None:
    begin = pipelining.SplitPoint.BEGINNING
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    with pytest.raises(RuntimeError, match=r"0\.weight|1\.weight"):
        pipelining.pipeline(model, (ts.ones(1, 3),), split_spec={"1": begin})
    with pytest.raises(ValueError, match="called by name, got 7"):
        pipelining.pipeline(nn.Sequential(nn.Linear(3, 3)), (ts.ones(1, 3),), split_spec={"7": begin})
    with pytest.raises(ValueError, match="Cannot specify both"):
        pipelining.pipeline(model, (), split_spec={"1": begin}, split_policy=lambda m: m)


def test_stages_and_schedules_that_do_not_fit_are_refused(alone: Any) -> None:
    with pytest.raises(ValueError, match="out of range"):
        pipelining.PipelineStage(nn.ReLU(), 2, 2, "cpu")
    two = [pipelining.PipelineStage(nn.Linear(2, 2), k, 2, "cpu") for k in range(2)]
    with pytest.raises(ValueError, match="one stage on each"):
        pipelining.ScheduleGPipe(two[0], 2)
    with pytest.raises(ValueError, match=r"expected the stages \[0, 1\]"):
        pipelining.ScheduleLoopedBFS(two[:1], 2)
    schedule = pipelining.ScheduleGPipe(
        pipelining.PipelineStage(nn.Linear(2, 2), 0, 1, "cpu"), 2, nn.functional.mse_loss
    )
    with pytest.raises(RuntimeError, match="call eval"), ts.no_grad():
        schedule.step(ts.ones(2, 2), target=ts.ones(2, 2))
    with pytest.raises(ValueError, match="expected target"):
        schedule.step(ts.ones(2, 2))
    with pytest.raises(ValueError, match="Unknown schedule name"):
        get_schedule_class("zigzag")


@pytest.mark.parametrize("kind", ["GPipe", "1F1B"])
def test_every_microbatch_goes_forward_before_it_comes_back(alone: Any, kind: str) -> None:
    schedule = get_schedule_class(kind)(pipelining.PipelineStage(nn.ReLU(), 0, 1, "cpu"), 3)  # type: ignore[arg-type]
    order = [str(action) for action in schedule.pipeline_order[0]]
    expected = {"GPipe": "0F0 0F1 0F2 0B0 0B1 0B2", "1F1B": "0F0 0B0 0F1 0B1 0F2 0B2"}
    assert order == expected[kind].split()


def test_microbatches_are_cut_and_put_together() -> None:
    x, y = ts.arange(10).reshape(5, 2), ts.arange(8).reshape(2, 4)
    args, kwargs = split_args_kwargs_into_chunks((x, 3), {"y": y}, 2, None, TensorChunkSpec.from_dict({"y": 1}))
    assert [tuple(a[0].shape) for a in args] == [(3, 2), (2, 2)] and all(a[1] == 3 for a in args)
    assert ts.equal(merge_chunks([a[0] for a in args]), x)
    assert ts.equal(merge_chunks([k["y"] for k in kwargs], TensorChunkSpec(1)), y)
    assert merge_chunks([ts.tensor(1.0), ts.tensor(2.0)], sum_reducer).item() == 3
    with pytest.raises(AssertionError, match="smaller than num_chunks"):
        split_args_kwargs_into_chunks((y,), None, 3)
