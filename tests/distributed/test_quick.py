"""Collectives by one native call: they leave, raise and write down what those do that go step by step."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import tesserack as ts
from tesserack import distributed as dist
from tesserack.overrides import TorchFunctionMode


@pytest.fixture(autouse=True)
def group() -> Iterator[Any]:
    """A world of one rank."""
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    if dist.is_initialized():
        dist.destroy_process_group()


def done_at_once(group: Any, tensor: Any, op: Any = dist.ReduceOp.SUM) -> bool:
    """Whether one call did it."""
    done: bool = group.quick().all_reduce(tensor, op, 1.0)
    return done


class Marked(ts.Tensor):
    """A class of a program."""


@pytest.mark.parametrize("op", ["SUM", "AVG", "PRODUCT", "MIN", "MAX"])
def test_plain_tensors_of_the_host_are_done_at_once(group: Any, op: str) -> None:
    x = ts.arange(6.0).view(2, 3)
    assert done_at_once(group, x, getattr(dist.ReduceOp, op)) and x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert group.quick().barrier(1.0)


@pytest.mark.parametrize(
    "tensor",
    [
        ts.ones(2, 3).t(),
        ts.ones(2, dtype=ts.complex64),
        ts.empty(0),
        ts.ones(2, device="meta"),
        ts.ones(2).to_sparse(),
        ts.ones(2).as_subclass(Marked),
        [1.0],
    ],
)
def test_others_go_step_by_step(group: Any, tensor: Any) -> None:
    assert not done_at_once(group, tensor) and not group.recorder.entries


@pytest.mark.parametrize("op", [dist.ReduceOp.BAND, dist._make_nccl_premul_sum(2.0), "sum", None])
def test_other_reductions_go_step_by_step(group: Any, op: Any) -> None:
    assert not done_at_once(group, ts.ones(2), op) and not group.recorder.entries


def test_what_watches_calls_is_asked(group: Any) -> None:
    with ts.profiler.profile():
        assert not done_at_once(group, ts.ones(2)) and not group.quick().barrier(1.0)
    with ts.inference_mode():
        assert not done_at_once(group, ts.ones(2))

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with Mode():
        assert not done_at_once(group, ts.ones(2))


def test_the_recorder_holds_what_it_holds_of_others(group: Any) -> None:
    x = ts.ones(2, 3)
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    dist.all_reduce(x)
    dist.all_reduce(x, async_op=True).wait()
    dist.barrier()
    one, other, third = group.recorder.entries
    assert one.keys() == other.keys() and [e["number"] for e in (one, other, third)] == [1, 2, 3]
    assert [one[k] for k in ("kind", "op", "of", "state")] == [other[k] for k in ("kind", "op", "of", "state")]
    assert (one["of"], third["op"], third["of"]) == ("float32[2, 3]", "barrier", "")
    assert (one["where"], other["where"]) == (f"{__file__}:{line}", f"{__file__}:{line + 1}")
    assert one["called"] <= one["started"] <= one["ended"] <= other["called"]


def test_it_keeps_the_last_ones(group: Any) -> None:
    x = ts.ones(1)
    for _ in range(600):
        dist.all_reduce(x)
    entries = group.recorder.entries
    assert [entry["number"] for entry in entries] == list(range(89, 601))


def test_a_failure_is_written_down_and_raised_as_of_others(group: Any) -> None:
    group.abort("given up")
    for later in (False, True):
        with pytest.raises(dist.DistBackendError, match="given up"):
            work = dist.all_reduce(ts.ones(1), async_op=later)
            work.wait()
    assert [(e["state"], e["error"]) for e in group.recorder.entries] == [("failed", "given up")] * 2


def test_writes_are_seen_by_what_saved_the_tensor() -> None:
    x, w = ts.ones(2), ts.ones(2, requires_grad=True)
    y = (x * w).sum()
    dist.all_reduce(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_a_group_that_was_left_does_nothing(group: Any) -> None:
    dist.destroy_process_group()
    with pytest.raises(dist.DistBackendError, match="was destroyed"):
        group.allreduce(ts.ones(1)).wait()
    assert group.quick() is None
