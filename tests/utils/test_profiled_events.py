"""What events of the profiler are called in PyTorch's programs."""

from __future__ import annotations

import tesserack as ts


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
