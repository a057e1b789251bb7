"""Generated dropout, normal numbers, cat, topk and RMS norm against the cpu backend."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts

F = ts.nn.functional
FLOATS = ts.float16, ts.bfloat16, ts.float32, ts.float64


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_numbers_are_those_of_the_cpu(schedule: str, dtype: Any) -> None:
    drawn = []
    for device in ("cpu", "opencl"):
        ts.manual_seed(3)
        drawn.append([ts.randn(n, dtype=dtype, device=device).cpu() for n in (1, 7, 1000)])
    tolerance = {ts.float16: 2e-3, ts.bfloat16: 2e-2, ts.float32: 1e-6, ts.float64: 1e-14}[dtype]
    for ours, theirs in zip(*drawn, strict=True):
        ts.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "layout, dtype",
    [*(("contiguous", dtype) for dtype in FLOATS), ("turned", ts.float32), ("channels last", ts.float32)],
)
def test_dropout_drops_what_the_cpu_drops(schedule: str, layout: str, dtype: Any) -> None:
    given = {
        "contiguous": ts.randn(5, 7, 3),
        "turned": ts.randn(6, 5).t(),
        "channels last": ts.randn(2, 3, 4, 5).contiguous(memory_format=ts.channels_last),
    }[layout].to(dtype)
    results = []
    for device in ("cpu", "opencl"):
        ts.manual_seed(3)
        x = given.clone().to(device).requires_grad_()
        ts.rand(5, device=device)  # the stream stands elsewhere than at its beginning
        y, again = F.dropout(x, 0.3, True), F.dropout(x, 0.3, True)
        y.sum().backward()
        results.append([y.detach().cpu(), again.detach().cpu(), x.grad.cpu(), F.dropout(x, 1.0, True).detach().cpu()])
    for ours, theirs in zip(*results, strict=True):
        ts.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [ts.float16, ts.int64, ts.bool])
def test_cat(schedule: str, dtype: Any) -> None:
    parts = [ts.randn(3, 4, 5), ts.randn(3, 2, 5), ts.randn(3, 5, 7).transpose(1, 2), ts.randn(3, 0, 5)]
    given = [(x * 5).abs().to(dtype) for x in parts]
    moved = [x.to("opencl") for x in given]
    assert ts.equal(ts.cat(moved, 1).cpu(), ts.cat(given, 1))
    assert ts.equal(ts.stack([moved[0]] * 40, 1).cpu(), ts.stack([given[0]] * 40, 1))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape", [(5,), (4, 100), (3, 50, 4), (2, 1000)])
def test_topk(schedule: str, shape: tuple[int, ...], largest: bool) -> None:
    ts.manual_seed(0)
    x = (ts.randn(shape) * 8).round() / 8  # with equal ones
    x.view(-1)[1] = float("nan")
    for given in (x, x.nan_to_num().mul(8).long()) if len(shape) > 1 else (x.half(), x.nan_to_num().mul(8).to(ts.int8)):
        for dim in range(given.ndim):
            k = min(5, given.shape[dim])
            values, places = given.to("opencl").topk(k, dim, largest)
            expected = given.topk(k, dim, largest)[0]
            ts.testing.assert_close(values.cpu(), expected, rtol=0, atol=0, equal_nan=True)
            ts.testing.assert_close(given.gather(dim, places.cpu()), expected, rtol=0, atol=0, equal_nan=True)
            assert places.cpu().sort(dim)[0].diff(dim=dim).min() > 0  # no place twice


def test_more_than_a_few_are_sorted(opencl: Any) -> None:
    x = ts.randn(3, 500)
    assert ts.equal(x.to("opencl").topk(100)[0].cpu(), x.topk(100)[0])


@pytest.mark.parametrize("dtype", [ts.float16, ts.float32, ts.float64])
def test_rms_norm(schedule: str, dtype: Any) -> None:
    given, scale = ts.randn(4, 6, 40).to(dtype), ts.randn(40).to(dtype)
    results = []
    for device in ("cpu", "opencl"):
        x, w = (t.clone().to(device).requires_grad_() for t in (given, scale))
        y = F.rms_norm(x, (40,), w)
        y.backward(y.detach().cos())
        results.append([t.detach().cpu() for t in (y, x.grad, w.grad, F.rms_norm(x, (6, 40), eps=1e-3))])
    tolerance = {ts.float16: 4e-3, ts.bfloat16: 4e-2, ts.float32: 1e-5, ts.float64: 1e-13}[dtype]
    for ours, theirs in zip(*results, strict=True):
        ts.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("size", [1, 33, 100_003])
def test_programs_in_vectors_end_where_the_tensors_do(opencl: Any, size: int) -> None:
    ts.manual_seed(0)
    x, y = ts.randn(size + 1), ts.randn(size)
    whole = x.to("opencl")
    kept = whole.cpu()[-1].item()
    target = whole[:size]
    ts.where(whole[:size] > 0, whole[:size].exp() * 2, y.to("opencl").erf(), out=target)
    ts.testing.assert_close(target.cpu(), ts.where(x[:size] > 0, x[:size].exp() * 2, y.erf()), rtol=2e-6, atol=1e-6)
    assert whole.cpu()[-1].item() == kept


def test_sums_by_index_are_in_order_where_that_is_asked(schedule: str) -> None:
    ts.manual_seed(0)
    index, values = ts.randint(0, 7, (5000,)), ts.randn(5000) * ts.logspace(-4, 4, 5000)
    expected = ts.zeros(7)
    for k in range(7):
        expected[k] = float(values[index == k].numpy().cumsum()[-1])  # one after the other, in float32
    ts.use_deterministic_algorithms(True)
    try:
        for _ in range(3):
            found = ts.zeros(7, device="opencl").index_add_(0, index.to("opencl"), values.to("opencl"))
            ts.testing.assert_close(found.cpu(), expected, rtol=0, atol=0)
    finally:
        ts.use_deterministic_algorithms(False)
    found = ts.zeros(7, device="opencl").index_add_(0, index.to("opencl"), values.to("opencl"))
    ts.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shape", [(3, 5, 7, 9), (2, 3, 70, 70), (1, 2, 9000)])
def test_norms_of_long_and_of_broken_rows(schedule: str, shape: tuple[int, ...]) -> None:
    ts.manual_seed(0)
    given = ts.randn(shape) + 3
    for turned in (given, given.transpose(-1, -2).contiguous().transpose(-1, -2)):
        answers = []
        for device in ("cpu", "opencl"):
            x = turned.clone().to(device).requires_grad_()
            y, z = F.batch_norm(x, None, None, training=True), F.layer_norm(x, shape[1:])
            (grad,) = ts.autograd.grad((y * y * y + z * x).sum(), x)
            answers.append([t.detach().cpu() for t in (y, z, F.softmax(x, 1), grad)])
        for ours, theirs in zip(*answers, strict=True):
            ts.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-4, check_stride=False)
