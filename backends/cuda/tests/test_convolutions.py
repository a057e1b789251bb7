"""Convolution by cuDNN's graphs: the simulated library computes what descriptors, strides and addresses say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tesserack as ts
from simulated import NAME, Simulated
from simulated_cudnn import COMPILATION, DOWN_CONVERT, NONDETERMINISTIC, TENSOR_CORE, SimulatedCudnn
from tesserack import _native

pytestmark = pytest.mark.usefixtures("no_fallback")


@pytest.fixture
def library(driver: Simulated) -> Iterator[SimulatedCudnn]:
    """cuDNN, which has done nothing yet and does not fail."""
    found: SimulatedCudnn = driver.libraries["cudnn"]
    found.executed.clear()
    found.layouts.clear()
    yield found
    found.failing.clear()


@pytest.fixture(autouse=True)
def executed(library: SimulatedCudnn) -> list[Any]:
    """What cuDNN has computed during the test."""
    return library.executed


def gradients(device: str, dims: int, dtype: Any, bias: bool, **window: Any) -> list[Any]:
    ts.manual_seed(0)
    groups = window.get("groups", 1)
    x = ts.randn(2, 4, *(7, 6, 5)[:dims]).to(dtype).to(device).requires_grad_()
    w = ts.randn(6, 4 // groups, *(3, 2, 3)[:dims]).to(dtype).to(device).requires_grad_()
    b = ts.randn(6).to(dtype).to(device).requires_grad_() if bias else None
    y = getattr(ts.nn.functional, f"conv{dims}d")(x, w, b, **window)
    y.backward(y.detach().cos())
    return [t.float().cpu() for t in (y.detach(), x.grad, w.grad, *((b.grad,) if b is not None else ()))]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(
    "window", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2}, {"groups": 2}], ids=str
)
def test_forward_and_gradients(executed: list[Any], dims: int, window: dict[str, Any]) -> None:
    for ours, theirs in zip(*(gradients(d, dims, ts.float32, True, **window) for d in (NAME, "cpu")), strict=True):
        ts.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert sorted(name for name, _ in executed) == ["conv_dgrad", "conv_fprop", "conv_wgrad"]


@pytest.mark.parametrize("dtype", [ts.float16, ts.bfloat16])
def test_half_precision(executed: list[Any], dtype: Any) -> None:
    for ours, theirs in zip(gradients(NAME, 2, dtype, True), gradients("cpu", 2, dtype, True), strict=True):
        ts.testing.assert_close(ours, theirs, rtol=5e-2, atol=1e-1)
    assert sorted(name for name, _ in executed) == ["bias", "conv_dgrad", "conv_wgrad"]


def test_what_cudnn_has_not_is_generated(executed: list[Any]) -> None:
    for ours, theirs in zip(*(gradients(d, 2, ts.float64, True) for d in (NAME, "cpu")), strict=True):
        ts.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert not executed


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("dtype", [ts.float32, ts.bfloat16], ids=str)
def test_images_that_lie_by_channels(library: SimulatedCudnn, dims: int, kernel: int, dtype: Any) -> None:
    """All three tensors of a graph do, then: weights and their gradients are turned on the way."""
    layout = ts.channels_last if dims == 2 else ts.channels_last_3d
    results = []
    for device in (NAME, "cpu"):
        ts.manual_seed(1)
        x = ts.randn(2, 4, *(6, 5, 3)[:dims]).to(dtype).to(device).to(memory_format=layout).requires_grad_()
        w, b = ts.randn(3, 4, *(kernel,) * dims).to(dtype).to(device), ts.randn(3).to(dtype).to(device)
        w.requires_grad_()
        y = getattr(ts.nn.functional, f"conv{dims}d")(x, w, b, padding=1)
        assert y.is_contiguous(memory_format=layout)
        y.backward(y.detach().cos())
        results.append([t.float().cpu() for t in (y.detach(), x.grad, w.grad)])
    bound = 1e-4 if dtype == ts.float32 else 1e-1
    for ours, theirs in zip(*results, strict=True):
        ts.testing.assert_close(ours, theirs, rtol=bound, atol=bound)
    assert len(library.executed) == 3
    assert all(strides[1] == 1 for graph in library.layouts for strides in graph)


def test_what_starts_at_an_odd_place(executed: list[Any]) -> None:
    """The alignment that a graph is promised is that of the operand."""
    flat, w = ts.randn(2 * 5 * 5 + 1), ts.randn(3, 2, 3, 3)
    x = flat.to(NAME)[1:].reshape(1, 2, 5, 5)
    expected = ts.nn.functional.conv2d(flat[1:].reshape(1, 2, 5, 5), w)
    ts.testing.assert_close(ts.nn.functional.conv2d(x, w.to(NAME)).cpu(), expected, rtol=1e-4, atol=1e-4)
    assert len(executed) == 1


def test_engines_that_round_more_are_left_out(executed: list[Any]) -> None:
    ts.manual_seed(1)
    x, w = ts.randn(1, 2, 5, 5).to(NAME), ts.randn(3, 2, 3, 3).to(NAME)
    before = ts.get_float32_matmul_precision()
    try:
        for deterministic in (False, True):
            ts.use_deterministic_algorithms(deterministic)
            for precision in ("highest", "high"):
                ts.set_float32_matmul_precision(precision)
                ts.nn.functional.conv2d(x, w)
        ts.nn.functional.conv2d(x.half(), w.half())
    finally:
        ts.use_deterministic_algorithms(False)
        ts.set_float32_matmul_precision(before)
    assert [notes for _, notes in executed] == [
        {NONDETERMINISTIC},
        {TENSOR_CORE},
        set(),
        {TENSOR_CORE},
        {TENSOR_CORE, DOWN_CONVERT},
    ]


def test_a_bias_that_no_engine_adds_is_added_apart(executed: list[Any]) -> None:
    ts.manual_seed(1)
    x, w, b = ts.randn(2, 2, 5, 5), ts.randn(3, 2, 3, 3), ts.randn(6)[::2]
    expected = ts.nn.functional.conv2d(x, w, b)
    before = ts.get_float32_matmul_precision()
    try:
        for precision in ("highest", "high"):
            ts.set_float32_matmul_precision(precision)
            got = ts.nn.functional.conv2d(x.to(NAME), w.to(NAME), b.to(NAME))
            ts.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4)
    finally:
        ts.set_float32_matmul_precision(before)
    assert [name for name, _ in executed] == ["conv_fprop", "bias"]


PLAN, GRAPH = 5, 15


@pytest.mark.parametrize("kind", [PLAN, GRAPH], ids=["plan", "graph"])
def test_a_failure_is_told(library: SimulatedCudnn, kind: int) -> None:
    """That cuDNN has no engine is no failure; all else is, and nothing is computed in its place."""
    x, w = ts.randn(1, 2, 6, 6 + kind).to(NAME), ts.randn(3, 2, 3, 4).to(NAME)  # a signature of its own
    held = len(library.objects)
    library.failing[kind] = COMPILATION
    with pytest.raises(RuntimeError, match=f"cudnnBackendFinalize returned status {COMPILATION} .CUDNN_STATUS_SIMUL"):
        ts.nn.functional.conv2d(x, w)
    assert len(library.objects) <= held + 1, "but a handle, nothing is kept of what failed"
    library.failing[kind] = 3000
    expected = ts.nn.functional.conv2d(x.cpu(), w.cpu())
    ts.testing.assert_close(ts.nn.functional.conv2d(x, w).cpu(), expected, rtol=1e-4, atol=1e-4)
    assert not library.executed and len(library.objects) <= held + 1


def test_an_execution_that_fails_is_told(library: SimulatedCudnn) -> None:
    x, w = ts.randn(1, 2, 6, 5).to(NAME), ts.randn(3, 2, 3, 3).to(NAME)
    library.failing["execute"] = 5000
    with pytest.raises(RuntimeError, match=r"cudnnBackendExecute refused .*5000"):
        ts.nn.functional.conv2d(x, w)
    library.failing.clear()
    expected = ts.nn.functional.conv2d(x.cpu(), w.cpu())
    ts.testing.assert_close(ts.nn.functional.conv2d(x, w).cpu(), expected, rtol=1e-4, atol=1e-4)


def test_a_second_call_enters_no_python(executed: list[Any]) -> None:
    x, w = ts.randn(3, 2, 9, 9).to(NAME), ts.randn(3, 2, 3, 3).to(NAME)
    for k in (0, 1, 2):  # one plan for each remainder of the offset
        ts.nn.functional.conv2d(x[k : k + 1], w)
    before = _native._launch_counters(NAME)
    results = [ts.nn.functional.conv2d(x[k : k + 1], w) for k in (0, 1, 2)]
    after = _native._launch_counters(NAME)
    assert after["kernels_in_python"] == before["kernels_in_python"] and after["by_plan"] == before["by_plan"] + 3
    expected = ts.nn.functional.conv2d(x.cpu(), w.cpu())
    ts.testing.assert_close(ts.cat(results).cpu(), expected, rtol=1e-4, atol=1e-4)


def test_streams_and_capture(executed: list[Any]) -> None:
    cuda = getattr(ts, NAME)
    x, w = ts.randn(1, 2, 5, 5).to(NAME), ts.randn(3, 2, 3, 3).to(NAME)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        y = ts.nn.functional.conv2d(x, w).relu()
    x.copy_(ts.randn(1, 2, 5, 5))
    executed.clear()
    graph.replay()
    ts.testing.assert_close(y.cpu(), ts.nn.functional.conv2d(x.cpu(), w.cpu()).relu(), rtol=1e-4, atol=1e-4)
    assert not executed, "a replay enters no Python of cuDNN's"


def test_without_the_library(driver: Simulated) -> None:
    """The backend asks once; a second one, made without, has the generated kernels."""
    from tesserack_cuda.backend import CUDA
    from tesserack_cuda.card import CUDACard
    from tesserack_cuda.convolution import Convolutions

    made = CUDA("withoutcudnn", lambda: driver.load()._replace(library=lambda name: None))
    assert Convolutions(made, CUDACard(made)).library is None
