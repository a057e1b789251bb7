"""What events of the profiler are called in PyTorch's programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack.utils import _ranges
from tesserack.utils.profiler import profile, schedule


def test_events_know_what_is_around_them():
    with ts.profiler.profile(record_shapes=True) as prof, ts.profiler.record_function("outer"):
        ts.ones(2, 3) @ ts.ones(3, 2)
    (outer,) = [event for event in prof.events() if event.key == "outer"]
    assert outer.is_user_annotation and outer.count == 1
    assert outer.cpu_parent.key == "ProfilerStep#0" and outer.cpu_parent.cpu_parent is None
    assert outer.cpu_children and all(child.cpu_parent is outer for child in outer.cpu_children)
    product = next(event for event in outer.cpu_children if event.input_shapes == [[2, 3], [3, 2]])
    assert outer.time_range.start <= product.time_range.start and product.time_range.end <= outer.time_range.end
    assert product.time_range.elapsed_us() == product.cpu_time == product.cpu_time_total
    assert product.cpu_memory_usage == product.memory and product.self_cpu_memory_usage == product.self_memory


def test_events_are_gathered_by_where_they_are_called(tmp_path):
    x = ts.ones(3)
    with ts.profiler.profile(with_stack=True, record_shapes=True) as prof:
        with ts.profiler.record_function("outer"):
            x.exp()
            x.exp()
        x[:2].exp()

    def rows(**how):
        return [row for row in prof.key_averages(**how) if row.key.endswith("exp")]

    assert [row.count for row in rows()] == [3]
    assert sorted(row.count for row in rows(group_by_input_shape=True)) == [1, 2]
    by_place = rows(group_by_stack_n=1)
    assert [row.count for row in by_place] == [1, 1, 1] and all(len(row.stack) == 1 for row in by_place)
    events = prof.events()
    outer = next(event for event in events if event.name == "outer")
    assert [child.name.rpartition("::")[2] for child in outer.cpu_children] == ["exp", "exp"]
    assert outer.cpu_children[0].cpu_parent is outer and len({event.id for event in events}) == len(events)
    assert (outer.trace_name, outer.scope, outer.cpu_children[0].scope, outer.kernels) == ("outer", 7, 0, [])
    text = prof.key_averages().table(top_level_events_only=True)
    assert "outer" in text
    top = events.table(top_level_events_only=True)
    assert top.count("exp") == 1
    events.export_stacks(tmp_path / "stacks.txt", "self_cpu_time_total")
    assert "test_profiled_events.py" in (tmp_path / "stacks.txt").read_text()


def test_steps_of_optimizers_and_batches_of_loaders_are_ranges():
    from tesserack.utils.data import DataLoader

    layer = ts.nn.Linear(2, 2)
    optimizer = ts.optim.SGD(layer.parameters(), lr=0.1)
    with profile() as prof:
        for x in DataLoader(ts.ones(6, 2), batch_size=2):
            optimizer.zero_grad()
            layer(x).sum().backward()
            optimizer.step()
    counts = {row.key: row.count for row in prof.key_averages() if "#" in row.key and "Profiler" not in row.key}
    assert counts == {
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": 4,
        "Optimizer.zero_grad#SGD.zero_grad": 3,
        "Optimizer.step#SGD.step": 3,
    }
    assert not _ranges.named


@pytest.mark.parametrize(("keep", "count"), [(False, 3), (True, 83)])
def test_cycles_of_a_schedule_add_up_where_asked(keep, count):
    with profile(schedule=schedule(wait=0, warmup=1, active=5, repeat=0), acc_events=keep) as prof:
        for _ in range(100):
            ts.ones(1).add(1)
            prof.step()
    assert {row.key: row.count for row in prof.key_averages()}["add"] == count
    assert sum(kernel.name == "pointwise" for kernel in prof.kernels()) == count


def test_nested_tensors_without_a_shape_are_recorded():
    rows = ts.nested.nested_tensor([ts.ones(2, 5), ts.ones(3, 5)])
    with profile(record_shapes=True) as prof:
        ts.nn.functional.linear(rows, ts.ones(4, 5))
    assert any([4, 5] in event.input_shapes for event in prof.events())


def test_a_range_whose_recording_another_thread_ended_is_none():
    with _ranges.around("late"):
        assert not _ranges.named


def test_events_of_profiles_are_of_the_classes_that_tools_make():
    from tesserack.utils.profiler._events import FunctionEvent, FunctionEventAvg, Interval
    from tesserack.utils.profiler._table import EventList

    x = ts.ones(2, 2)
    with ts.autograd.profiler.profile(record_shapes=True) as older:
        x @ x
    with profile() as prof:
        x @ x
    for events, averages in ((older.function_events, older.key_averages()), (prof.events(), prof.key_averages())):
        assert type(events) is type(averages) is EventList
        assert all(isinstance(event, FunctionEvent) for event in events) and type(events[0].time_range) is Interval
        assert all(type(average) is FunctionEventAvg for average in averages)
    total = older.total_average()
    assert type(total) is FunctionEventAvg and total.key == "Total" and total.count == len(older.events())
    assert total.cpu_time_total == total.self_cpu_time_total
    made = EventList([FunctionEvent(0, "matmul", 1, 0, 5), *prof.events()])  # of both kinds
    (average,) = [row for row in made.key_averages() if row.key == "matmul"]
    assert average.count == 2 and average.cpu_time_str.endswith("s")
    assert prof.events()[0].cpu_time_total_str.endswith("s") and "matmul" in made.table()


@pytest.mark.parametrize("kind", [ts.profiler.profile, ts.autograd.profiler.profile])
def test_operations_are_counted_once_where_asked(kind: Any) -> None:
    model = ts.nn.Sequential(ts.nn.Conv2d(3, 8, 3), ts.nn.Linear(6, 5))

    def counts(**options: Any) -> tuple[dict[str, int], str]:
        with kind(**options) as prof:
            (model(ts.ones(2, 3, 8, 8)) * 2 + 1).sum()
        averages = prof.key_averages()
        return {row.key: row.flops for row in averages if row.flops}, averages.table()

    images, rows = 2 * 2 * 8 * 6 * 6 * 3 * 3 * 3, 2 * 2 * 8 * 6 * 6 * 5
    elements = 2 * 8 * 6 * 5
    wanted = {"conv2d": images, "linear": rows, "mul": elements, "add": elements}
    assert counts(with_flops=True)[0] == wanted
    assert counts(with_flops=True)[1].splitlines()[1].endswith("Total KFLOPs")
    assert counts()[0] == {} and "FLOPs" not in counts()[1]


def test_the_older_profiler_notes_places(tmp_path: Path) -> None:
    with ts.autograd.profiler.profile(with_stack=True) as prof:
        for _ in range(50):
            ts.ones(100, 100).exp()
    prof.export_stacks(str(tmp_path / "stacks"))
    assert "test_the_older_profiler_notes_places" in (tmp_path / "stacks").read_text()
