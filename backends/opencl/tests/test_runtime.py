"""Memory, waiting, faults, streams and the disk cache of the opencl backend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts


def test_copies_to_and_from_parts_of_a_storage() -> None:
    x = ts.arange(1000)
    moved = x.to("opencl")
    moved[10:20] = ts.zeros(10, dtype=ts.int64).to("opencl")
    x[10:20] = 0
    assert moved[5:900].cpu().tolist() == x[5:900].tolist()


def test_large_copies() -> None:
    x = ts.arange(700_000, dtype=ts.float32)
    assert bool((x.to("opencl").cpu() == x).all())


def test_an_index_out_of_range_is_told_at_the_next_wait_and_only_there() -> None:
    x = ts.arange(5.0, device="opencl")
    x.gather(0, ts.tensor([1, 7]).to("opencl"))
    with pytest.raises(IndexError, match=r"gather.*index 7 is out of bounds"):
        ts.opencl.synchronize()
    ts.opencl.synchronize()
    assert x.tolist() == [0, 1, 2, 3, 4]


def test_integer_division_by_zero_is_told_at_the_next_wait() -> None:
    x = ts.arange(5, device="opencl") // ts.zeros(5, dtype=ts.int64).to("opencl")
    with pytest.raises(RuntimeError, match="integer division by zero"):
        x.tolist()


def test_streams_order_work_by_events() -> None:
    first, second = ts.opencl.Stream(), ts.opencl.Stream()
    with ts.opencl.stream(first):
        x = ts.full((1000,), 2.0, device="opencl")
        for _ in range(5):
            x = x * 2
    event = first.record_event()
    second.wait_event(event)
    with ts.opencl.stream(second):
        y = x + 1
    second.synchronize()
    assert y.cpu().tolist() == [65.0] * 1000


def test_events_time_what_the_device_did() -> None:
    begin, end = (ts.opencl.Event(enable_timing=True) for _ in range(2))
    begin.record()
    (ts.ones(100, device="opencl") + 1).sum()
    end.record()
    end.synchronize()
    assert 0 < begin.elapsed_time(end) < 1e5


def test_calls_of_one_signature_enter_python_once() -> None:
    def entered() -> int:
        return int(ts.backends.capabilities("opencl")["launches"]["kernels_in_python"])

    x = ts.ones(37, 3, device="opencl")
    x + 1.5
    before = entered()
    for k in range(5):
        x + float(k)
    assert entered() == before


SECOND_START = """
import tesserack as ts
from tesserack_opencl import card
((ts.ones(9, device="opencl") * 3).exp().sum()).item()
print(card.statistics.compiled, card.statistics.from_disk)
"""


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    def counts(**options: str) -> list[int]:
        environment = {**os.environ, "TESSERACK_KERNEL_CACHE": str(tmp_path), **options}
        command = [sys.executable, "-c", SECOND_START]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return [int(word) for word in done.stdout.split()]

    compiled, from_disk = counts()
    assert compiled > 0 and from_disk == 0
    assert counts() == [0, compiled]
    next(tmp_path.iterdir()).write_bytes(b"damaged")
    assert counts() == [1, compiled - 1]
    # What the compiler is asked for is part of a kernel's name: others are compiled, and these kept beside.
    assert counts(PYOPENCL_BUILD_OPTIONS="-cl-opt-disable") == [compiled, 0]
    assert counts(PYOPENCL_BUILD_OPTIONS="-cl-opt-disable") == counts() == [0, compiled]


def test_a_platform_that_cannot_compile_is_skipped_with_its_reason(monkeypatch: Any) -> None:
    from tesserack_opencl import devices

    def broken(context: Any, device: Any) -> None:
        raise RuntimeError("unknown target CPU 'generic'")

    monkeypatch.setattr(devices, "_works", broken)
    found, reason = devices._search.__wrapped__()
    assert found == () and "unknown target CPU" in reason


def test_a_stream_is_idle_after_it_was_waited_for() -> None:
    stream = ts.opencl.Stream()
    with ts.opencl.stream(stream):
        ts.ones(1000, device="opencl") * 2
    stream.synchronize()
    assert stream.query()
