"""The backend's own code, driven against a simulated driver that does nothing before somebody waits."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from simulated import NAME, Simulated

pytestmark = pytest.mark.usefixtures("no_fallback")


def test_properties(driver: Simulated) -> None:
    properties = getattr(ts, NAME).get_device_properties(1)
    assert properties.name == "Simulated" and properties.compute_units == 4
    assert properties.total_memory == 1 << 28


@pytest.mark.parametrize("size", [1, 7, 1000, 300_000])
def test_copies_keep_their_bytes(driver: Simulated, size: int) -> None:
    given = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    kept = given.copy()
    x = ts.from_numpy(given).to(NAME)
    given[:] = 0  # the source is the caller's again
    assert (x.cpu().numpy() == kept).all()
    assert (x[size // 2 :].clone().cpu().numpy() == kept[size // 2 :]).all()


def test_more_copies_than_pieces_of_pinned_memory(driver: Simulated) -> None:
    tensors = [ts.full((100,), k, dtype=ts.int64).to(NAME) for k in range(100)]
    assert [int(t[99].item()) for t in tensors] == [*range(100)]


def test_arithmetic_and_a_product(driver: Simulated) -> None:
    ts.manual_seed(0)
    a, b = ts.randn(40, 50), ts.randn(50, 30)
    got = (a.to(NAME) @ b.to(NAME) * 2 + 1).relu().cpu()
    ts.testing.assert_close(got, (a @ b * 2 + 1).relu(), rtol=1e-5, atol=1e-5)


def test_memory_goes_back(driver: Simulated) -> None:
    ts.empty_cache(NAME)  # of other tests
    before = driver.live
    x = ts.ones(1 << 20, device=NAME)
    assert driver.live > before
    del x
    ts.empty_cache(NAME)
    assert driver.live <= before


def test_out_of_memory_says_so(driver: Simulated) -> None:
    with pytest.raises(ts.OutOfMemoryError, match=NAME):
        ts.empty(1 << 29, dtype=ts.uint8, device=NAME)
    assert int(ts.ones(3, device=NAME).sum()) == 3  # and the device goes on


def test_streams_and_events(driver: Simulated) -> None:
    side = ts.Stream(NAME)
    x = ts.ones(1000, device=NAME)
    ready = ts.Event(NAME)
    ready.record()
    with ts.stream(side):
        side.wait_event(ready)
        y = x + 1
    done = side.record_event()
    assert not done.query()
    ts.current_stream(NAME).wait_event(done)
    assert float((y * 2).sum()) == 4000
    done.synchronize()
    assert done.query()


def test_elapsed_time(driver: Simulated) -> None:
    begin, end = ts.Event(NAME, enable_timing=True), ts.Event(NAME, enable_timing=True)
    begin.record()
    x = ts.ones(10, device=NAME) + 1
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) > 0
    del x


def test_copies_between_devices(driver: Simulated) -> None:
    x = ts.arange(1000, device=f"{NAME}:0") * 3
    y = x.to(f"{NAME}:1")
    assert y.device.index == 1
    assert ts.equal((y + 1).cpu(), ts.arange(1000) * 3 + 1)


def test_threads_use_several_devices(driver: Simulated) -> None:
    """A thread that never used a device launches on it, whatever the one before it made current."""
    errors: list[BaseException] = []

    def work(device: int) -> None:
        try:
            for _ in range(5):
                x = ts.full((64,), float(device), device=f"{NAME}:{device}")
                assert float((x + 1).sum()) == 64 * (device + 1)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k % 2,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_fault_arrives_at_the_next_wait(driver: Simulated) -> None:
    x = ts.ones(5, device=NAME)
    index = ts.tensor([7]).to(NAME)
    with pytest.raises(IndexError, match="7"):
        x.gather(0, index)
        ts.synchronize(NAME)
    assert float(x.sum()) == 5  # reported once


def test_a_training_step(driver: Simulated) -> None:
    results = []
    for device in ("cpu", NAME):
        ts.manual_seed(3)
        model = ts.nn.Sequential(ts.nn.Linear(6, 8), ts.nn.Tanh(), ts.nn.Linear(8, 3))
        x, y = ts.randn(10, 6), ts.randint(0, 3, (10,))
        model, x, y = model.to(device), x.to(device), y.to(device)
        optimizer = ts.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = ts.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        results.append(float(loss))
    assert abs(results[0] - results[1]) < 1e-5


def test_a_convolutional_network_trains(driver: Simulated) -> None:
    nn, losses = ts.nn, []
    for device in ("cpu", NAME):
        ts.manual_seed(0)
        layers = [nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3)]
        model = nn.Sequential(*layers, nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 10)).to(device)
        optimizer = ts.optim.AdamW(model.parameters(), lr=1e-2)
        x, y = ts.randn(8, 1, 8, 8).to(device), ts.randint(0, 10, (8,)).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
    assert losses[3:] == pytest.approx(losses[:3], abs=1e-5)


@pytest.mark.parametrize("n", [1, 255, 1023, 1024, 1025, 4097])
def test_threads_that_take_several_elements_take_each_once(driver: Simulated, n: int) -> None:
    """16 bytes of them: four of float32, eight of bfloat16, sixteen of int8; along lines, and in rows."""
    x = ts.arange(2 * n).remainder(101).reshape(2, n)
    for dtype in (ts.float32, ts.bfloat16, ts.int8, ts.bool):
        y = x.to(dtype)
        expected, bias = y.logical_not() if dtype == ts.bool else y + y, y[1]
        on_device, vector = y.to(NAME), bias.to(NAME)
        got = on_device.logical_not() if dtype == ts.bool else on_device + on_device
        assert ts.equal(got.cpu(), expected) and ts.equal(on_device.to(ts.float32).cpu(), y.to(ts.float32))
        wide = ts.zeros(2, n + 3, dtype=dtype, device=NAME)
        wide[:, 1 : n + 1] = on_device | vector if dtype == ts.bool else on_device + vector
        assert ts.equal(wide.cpu()[:, 1 : n + 1], y | bias if dtype == ts.bool else y + bias)
        assert not wide.cpu()[:, n + 1 :].any() and not wide.cpu()[:, 0].any()


@pytest.mark.parametrize("dtype", [ts.float32, ts.float64, ts.float16, ts.bfloat16], ids=str)
@pytest.mark.parametrize("width", [3, 300])
def test_gradients_of_embeddings(driver: Simulated, dtype: Any, width: int) -> None:
    """Rows of one index are added up in float32, whatever their dtype; rows of no index are zeros."""
    ts.manual_seed(4)
    ids, table = ts.randint(0, 40, (3, 150)), ts.randn(60, width).to(dtype)
    ids[2, 100:] = 7
    results = []
    before = ts.backends.get_fallback()
    ts.backends.set_fallback("error")
    try:
        for device in (NAME, "cpu"):
            wide = dtype if device == NAME or dtype == ts.float64 else ts.float32
            weight = table.to(wide).to(device).requires_grad_()
            y = ts.nn.functional.embedding(ids.to(device), weight, padding_idx=5)
            y.backward(ts.arange(y.numel()).remainder(17).reshape(y.shape).to(wide).to(device))
            results.append(weight.grad.cpu())
    finally:
        ts.backends.set_fallback(before)
    ours, theirs = results
    assert ts.equal(ours, theirs.to(dtype)) and not ours[5].any() and not ours[40:].any()


def test_a_bad_index_in_a_gradient_is_told(driver: Simulated) -> None:
    grad, ids = ts.ones(2, 3, device=NAME), ts.tensor([1, 9]).to(NAME)
    with pytest.raises(IndexError, match=r"index 9 is out of bounds"):
        ts.ops.embedding_backward(grad, ids, 4, -1).cpu()
    assert ts.ones(2, device=NAME).cpu().tolist() == [1, 1]


def test_names_that_programs_for_cuda_use(driver: Simulated) -> None:
    cuda = getattr(ts, NAME)
    assert cuda.is_available() and cuda.device_count() == 2 and cuda.current_device() == 0
    assert cuda.get_device_capability() == (9, 0) and cuda.get_arch_list() == ["sm_90"]
    assert cuda.get_device_name(1) == "Simulated" and cuda.can_device_access_peer(0, 1)
    x = ts.ones(1000, device=NAME)
    assert cuda.memory_allocated() >= 4000 and "allocated" in cuda.memory_summary()
    cuda.reset_max_memory_allocated()
    assert cuda.max_memory_allocated() >= 4000 and cuda.memory_cached() == cuda.memory_reserved()
    states = cuda.get_rng_state_all()
    first = ts.rand(5, device=NAME).cpu()
    cuda.seed_all()
    cuda.set_rng_state_all(states)
    assert ts.equal(ts.rand(5, device=NAME).cpu(), first)
    with cuda.amp.autocast(dtype=ts.bfloat16):
        assert (x.reshape(10, 100) @ x.reshape(100, 10)).dtype == ts.bfloat16
    assert cuda.amp.GradScaler().is_enabled()
    free, total = cuda.mem_get_info()
    assert 0 < free <= total == 1 << 28
    with pytest.raises(AttributeError, match="nonsense"):
        _ = cuda.nonsense


def test_without_a_device_memory_is_nothing_and_asking_is_no_error() -> None:
    if ts.cuda.is_available():
        pytest.skip("there is a device")
    assert ts.cuda.memory_allocated() == ts.cuda.max_memory_reserved() == 0 and not ts.cuda.memory_stats()
    assert not ts.cuda.is_current_stream_capturing()
    with pytest.raises(RuntimeError):
        ts.cuda.memory_allocated(0)


@pytest.mark.parametrize("kind", ["none", "causal", "mask"])
def test_attention_of_groups(driver: Simulated, kind: str) -> None:
    ts.manual_seed(1)
    drawn = ts.randn(1, 2, 20, 8), ts.randn(1, 2, 35, 8), ts.randn(1, 2, 35, 12)
    mask = ts.rand(20, 35) > 0.4 if kind == "mask" else None
    results = []
    for device in (NAME, "cpu"):
        q, k, v = (x.to(device).requires_grad_() for x in drawn)
        seen = None if mask is None else mask.to(device)
        y = ts.nn.functional.scaled_dot_product_attention(q, k, v, seen, is_causal=kind == "causal")
        y.backward(y.detach().cos())
        results.append([x.detach().cpu() for x in (y, q.grad, k.grad, v.grad)])
    for ours, theirs in zip(*results, strict=True):
        ts.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_loss_by_groups(driver: Simulated, zero_infinity: bool) -> None:
    """Items of a group go through a sequence together; labels that repeat are added up in one place."""
    targets = ts.tensor([[1, 1, 2, 8], [3, 0, 0, 0], [7, 7, 7, 7], [0, 0, 0, 0]])
    lengths, sizes = ts.tensor([12, 1, 4, 3]), ts.tensor([4, 1, 4, 0])
    found = []
    for device, dtype in ((NAME, ts.float32), ("cpu", ts.float64)):
        ts.manual_seed(0)
        x = ts.randn(12, 4, 9).log_softmax(2).to(dtype).to(device).requires_grad_()
        loss = ts.nn.functional.ctc_loss(x, targets, lengths, sizes, reduction="none", zero_infinity=zero_infinity)
        found.append((loss.detach().cpu().double(), ts.autograd.grad(loss.sum(), x)[0].cpu().double()))
    for mine, theirs in zip(*found, strict=True):
        assert ts.allclose(mine, theirs, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_places_of_an_image_by_threads(driver: Simulated) -> None:
    """Gradients are added up atomically, those of float16 beside the output."""
    ts.manual_seed(0)
    drawn, seed = (ts.randn(2, 3, 5, 6).half(), (ts.rand(2, 7, 4, 2) * 3 - 1.5).half()), ts.randn(2, 3, 7, 4).half()
    found = []
    for device in (NAME, "cpu"):
        x, grid = (t.to(device).requires_grad_() for t in drawn)
        y = ts.nn.functional.grid_sample(x, grid, padding_mode="border", align_corners=False)
        found.append([t.detach().cpu() for t in (y, *ts.autograd.grad(y, (x, grid), seed.to(device)))])
    for ours, theirs in zip(*found, strict=True):
        ts.testing.assert_close(ours, theirs, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("dim", [0, 1])
def test_spread_of_rows_and_columns(driver: Simulated, dim: int) -> None:
    ts.manual_seed(0)
    x = ts.randn(37, 300) + 3
    for name in ("var", "std"):
        found, wanted = (getattr(y, name)(dim).cpu() for y in (x.to(NAME), x.double()))
        assert ts.allclose(found.double(), wanted, rtol=1e-5, atol=1e-5), name


@pytest.mark.parametrize("dtype", [ts.float32, ts.float16], ids=str)
def test_products_of_nothing(driver: Simulated, dtype: Any) -> None:
    """K may be 0: the kernel itself gives zeros."""
    a, b = ts.ones(3, 0, dtype=dtype, device=NAME), ts.ones(0, 5, dtype=dtype, device=NAME)
    out = ts.full((3, 5), 7.0, dtype=dtype).to(NAME)
    assert ts._native._run_matmul_kernel(out, a, b, None)
    assert out.tolist() == [[0.0] * 5] * 3
