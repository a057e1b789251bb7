"""The names of ``torch.cuda`` that programs touch, and what some of them do."""

from __future__ import annotations

import csv
import os
import pickle
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from simulated import NAME, Simulated
from tesserack import _native

pytestmark = pytest.mark.usefixtures("no_fallback")

with Path(__file__).with_name("torch_cuda_names.csv").open(newline="") as _file:
    USED = {row["name"]: int(row["repositories"]) for row in csv.DictReader(_file)}


@pytest.fixture
def cuda(driver: Simulated) -> Any:
    return getattr(ts, NAME)


@pytest.mark.parametrize("name", [*USED])
def test_names_that_repositories_use(cuda: Any, name: str) -> None:
    assert attrgetter(name)(cuda) is not None


def test_the_list_is_not_empty() -> None:
    assert sum(count >= 2 for count in USED.values()) >= 30 and USED["is_available"] > 30


def test_the_installed_package_has_them_without_a_device() -> None:
    """Programs ask hasattr, or decorate with what they use later."""
    if ts.cuda.is_available():
        pytest.skip("there is a device")
    assert [name for name in USED if not hasattr(ts.cuda, name.partition(".")[0])] == []
    assert not ts.cuda.is_current_stream_capturing() and not ts.cuda._is_in_bad_fork()


def test_typed_tensors(cuda: Any) -> None:
    x = cuda.FloatTensor([1, 2, 3])
    assert x.device.type == NAME and x.dtype == ts.float32 and x.cpu().tolist() == [1, 2, 3]
    assert isinstance(x, cuda.FloatTensor) and not isinstance(x.cpu(), cuda.FloatTensor)
    assert not isinstance(x, cuda.HalfTensor) and cuda.LongTensor(2, 3).shape == (2, 3)


def test_streams_are_shared_by_their_handles(cuda: Any, driver: Simulated) -> None:
    ours = cuda.Stream()
    assert ours.__cuda_stream__() == (0, ours.cuda_stream) and ours.cuda_stream == ours.stream_id
    assert driver._stream(ours.cuda_stream).device == 0
    theirs = driver.streamCreateWithPriority(1, 0)
    stream = cuda.ExternalStream(theirs)
    assert stream.cuda_stream == theirs and stream == cuda.get_stream_from_external(theirs)
    x = ts.ones(4, device=NAME)
    stream.wait_stream(cuda.current_stream())
    before = driver._stream(theirs).queued
    with cuda.stream(stream):
        y = x * 3
    assert driver._stream(theirs).queued > before
    cuda.current_stream().wait_stream(stream)
    assert y.cpu().tolist() == [3] * 4
    del stream, y
    assert theirs in driver._streams, "its owner destroys it"
    driver.streamDestroy(theirs)
    with pytest.raises(AttributeError, match="cuda_stream"):
        _ = ts.Stream("cpu").cuda_stream


def test_memory_comes_from_the_pool(cuda: Any, driver: Simulated) -> None:
    cuda.empty_cache()
    live, stats = driver.live, cuda.memory_stats()
    x = ts.empty(1 << 20, dtype=ts.uint8, device=NAME)
    now = cuda.memory_stats()
    assert now["pool_used"] - stats["pool_used"] == 1 << 20 == now["reserved"] - stats["reserved"]
    assert now["allocated_bytes.all.current"] == now["allocated"] == cuda.memory_allocated()
    assert driver.live >= live + (1 << 20)
    del x
    assert cuda.memory_reserved() == now["reserved"], "it is kept for the next"
    cuda.empty_cache()
    assert driver.live == live and cuda.memory_stats()["pool_used"] == stats["pool_used"]


def test_what_cupy_keeps_goes_back_too(cuda: Any, driver: Simulated) -> None:
    """A program's own arrays of CuPy, let go of, lie in the pool that both share."""
    cuda.empty_cache()
    live = driver.live
    driver.setDevice(0)
    array = driver.pool.malloc(1 << 20)
    del array
    assert driver.live > live
    ts.empty_cache(NAME)
    assert driver.live == live


def test_out_of_memory_tells_sizes(cuda: Any, driver: Simulated) -> None:
    message = rf"tried to allocate 512\.0 MiB.*no 536,870,912 bytes on device 0, where [\d,]+ of {1 << 28:,} are free"
    with pytest.raises(cuda.OutOfMemoryError, match=message):
        ts.empty(1 << 29, dtype=ts.uint8, device=NAME)
    cuda.set_per_process_memory_fraction(0.5)
    try:
        assert cuda.get_per_process_memory_fraction() == 0.5
        with pytest.raises(cuda.OutOfMemoryError, match=f"limited to {1 << 27:,}"):
            ts.empty(200 << 20, dtype=ts.uint8, device=NAME)
    finally:
        cuda.set_per_process_memory_fraction(0)
    x = ts.empty(200 << 20, dtype=ts.uint8, device=NAME)
    assert x.numel() == 200 << 20 and cuda.get_per_process_memory_fraction() == 1
    del x
    cuda.empty_cache()
    with pytest.raises(ValueError, match="Allowed range: 0~1"):
        cuda.set_per_process_memory_fraction(1.5)


def test_memory_of_a_stream_that_is_gone_waits_for_its_later_use(cuda: Any, driver: Simulated) -> None:
    """Work that is queued on the default stream uses a block of another stream, when it goes back to the pool."""
    side = cuda.Stream()
    with cuda.stream(side):
        x = ts.empty(3 << 20, dtype=ts.uint8, device=NAME)
        del x
    side.synchronize()
    del side  # its blocks are the default stream's now
    y = ts.empty(3 << 20, dtype=ts.uint8, device=NAME)
    z = y + 1
    pending = len(driver._default[0].queue)
    del y
    cuda.empty_cache()
    assert pending and not driver._default[0].queue
    del z


def test_pinned_memory_and_copies_under_way(cuda: Any, driver: Simulated) -> None:
    x = ts.arange(1000).pin_memory(NAME)
    assert x.is_pinned()
    before = driver._default[0].ran
    y = x.to(NAME, non_blocking=True)
    assert driver._default[0].ran == before, "nothing was waited for"
    assert ts.equal(y.cpu(), ts.arange(1000))


def test_snapshots(cuda: Any, tmp_path: Path) -> None:
    cuda.memory._record_memory_history(max_entries=100)
    x = ts.empty(5 << 20, dtype=ts.uint8, device=NAME)
    found = cuda.memory._snapshot()
    cuda.memory._dump_snapshot(str(tmp_path / "memory.pickle"))
    cuda.memory._record_memory_history(enabled=None)
    assert any(s["address"] == x.data_ptr() and s["total_size"] >= 5 << 20 for s in found["segments"])
    event = found["device_traces"][0][-1]
    assert event["action"] == "segment_alloc" and event["addr"] == x.data_ptr()
    assert any(frame["name"] == "test_snapshots" for frame in event["frames"])
    assert pickle.loads((tmp_path / "memory.pickle").read_bytes())["device_traces"][0]
    assert cuda.memory._snapshot()["device_traces"] == [[], []]
    assert cuda.memory.memory_allocated() == cuda.memory_allocated()


def test_waits_are_reported(cuda: Any) -> None:
    x = ts.ones(3, device=NAME)
    cuda.set_sync_debug_mode("error")
    try:
        assert cuda.get_sync_debug_mode() == 2
        with pytest.raises(RuntimeError, match="item"):
            x[0].item()
    finally:
        cuda.set_sync_debug_mode("default")
    assert x[0].item() == 1
    with pytest.raises(RuntimeError, match="debug_mode"):
        cuda.set_sync_debug_mode("loud")


def test_the_runtimes_functions(cuda: Any, driver: Simulated) -> None:
    runtime = cuda.cudart()
    assert runtime.cudaProfilerStart() == runtime.cudaError.success == 0
    with cuda.profiler.profile():
        assert driver.profiling == 2
    assert runtime.cudaProfilerStop() == 0 and driver.profiling == 0
    free, total = runtime.cudaMemGetInfo(0)
    assert 0 < free <= total == 1 << 28


def test_versions_and_forks(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cuda.nccl.version() == (2, 32, 3) and cuda.nccl.is_available([ts.ones(1, device=NAME)])
    assert not cuda.nccl.is_available([ts.ones(1)]) and cuda.is_tf32_supported()
    assert not cuda._is_in_bad_fork()
    backend: Any = _native._python_backend(NAME)
    monkeypatch.setattr(backend, "begun_by", os.getpid() + 1)
    assert cuda._is_in_bad_fork()


def test_tf32_by_its_older_switch() -> None:
    from tesserack.compat.shims.backends import cuda as switches

    before = ts.get_float32_matmul_precision()
    try:
        switches.matmul.allow_tf32 = True
        assert ts.get_float32_matmul_precision() == "high" and switches.matmul.allow_tf32
        switches.matmul.fp32_precision = "ieee"
        assert ts.get_float32_matmul_precision() == "highest" and not switches.matmul.allow_tf32
    finally:
        ts.set_float32_matmul_precision(before)


def test_properties_and_memory_under_pytorch_names(cuda: Any) -> None:
    told = cuda.get_device_properties(1)
    assert (told.major, told.minor) == cuda.get_device_capability(1) == (9, 0)
    assert told.multi_processor_count == 4 and told.shared_memory_per_block == 49152 and told.name == "Simulated"
    assert told.L2_cache_size == 0  # not every runtime tells it
    assert told.uuid.bytes == b"simulated GPU 01"
    assert isinstance(told, cuda._CudaDeviceProperties)
    x = cuda.FloatTensor(1000)
    assert x.type() == f"{ts.__name__}.{NAME}.FloatTensor" and x.type(ts.FloatTensor).device.type == "cpu"
    stats = cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == stats["allocated"] >= 4000
    assert stats["reserved_bytes.all.peak"] >= stats["pool_used"] > 0 and stats["num_device_alloc"] > 0
