"""Convolution by cuDNN's graphs: the simulated frontend computes what its nodes, strides and addresses say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tesserack as ts
from conftest import NAME
from simulated import Simulated
from simulated_cudnn import SimulatedCudnn
from tesserack import _native

pytestmark = pytest.mark.usefixtures("no_fallback")


@pytest.fixture(autouse=True)
def executed(driver: Simulated) -> Iterator[list[Any]]:
    """What cuDNN has computed during the test."""
    library = driver.libraries["cudnn"]
    library.executed.clear()
    yield library.executed


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
    assert sorted(name for name, _ in executed) == ["bias", "conv_dgrad", "conv_wgrad"]


@pytest.mark.parametrize("dtype", [ts.float16, ts.bfloat16])
def test_half_precision(executed: list[Any], dtype: Any) -> None:
    for ours, theirs in zip(gradients(NAME, 2, dtype, False), gradients("cpu", 2, dtype, False), strict=True):
        ts.testing.assert_close(ours, theirs, rtol=5e-2, atol=1e-1)
    assert len(executed) == 3


def test_what_cudnn_has_not_is_generated(executed: list[Any]) -> None:
    for ours, theirs in zip(*(gradients(d, 2, ts.float64, True) for d in (NAME, "cpu")), strict=True):
        ts.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert not executed


def test_images_that_lie_by_channels(executed: list[Any]) -> None:
    ts.manual_seed(1)
    x, w = ts.randn(2, 4, 6, 5), ts.randn(3, 4, 3, 3)
    last = x.to(NAME).to(memory_format=ts.channels_last)
    ts.testing.assert_close(
        ts.nn.functional.conv2d(last, w.to(NAME)).cpu(), ts.nn.functional.conv2d(x, w), rtol=1e-4, atol=1e-4
    )
    assert len(executed) == 1


def test_engines_that_round_more_are_left_out(executed: list[Any]) -> None:
    ts.manual_seed(1)
    x, w = ts.randn(1, 2, 5, 5).to(NAME), ts.randn(3, 2, 3, 3).to(NAME)
    before = ts.get_float32_matmul_precision()
    try:
        for precision in ("highest", "high"):
            ts.set_float32_matmul_precision(precision)
            ts.nn.functional.conv2d(x, w)
        ts.use_deterministic_algorithms(True)
        ts.nn.functional.conv2d(x, w)
    finally:
        ts.use_deterministic_algorithms(False)
        ts.set_float32_matmul_precision(before)
    highest, high, deterministic = (notes for _, notes in executed)
    assert highest == {"DOWN_CONVERT_INPUTS", "TENSOR_CORE"} and high == {"DOWN_CONVERT_INPUTS"}
    assert deterministic == {"DOWN_CONVERT_INPUTS", "NONDETERMINISTIC"}


def test_a_graph_is_built_once(executed: list[Any]) -> None:
    x, w = ts.randn(3, 2, 9, 9).to(NAME), ts.randn(3, 2, 3, 3).to(NAME)
    ts.nn.functional.conv2d(x[:1], w)
    before = _native._launch_counters(NAME)["kernels_in_python"]
    results = [ts.nn.functional.conv2d(x[k : k + 1], w).cpu() for k in (0, 1, 2)]
    assert _native._launch_counters(NAME)["kernels_in_python"] <= before + 2, "one for each remainder of the offset"
    expected = ts.nn.functional.conv2d(x.cpu(), w.cpu())
    ts.testing.assert_close(ts.cat(results), expected, rtol=1e-4, atol=1e-4)


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
    from tesserack_cuda.cudnn import Convolutions

    made = CUDA("withoutcudnn", lambda: driver.load()._replace(library=lambda name: None))
    assert Convolutions(made, CUDACard(made)).library is None


def test_the_simulation_has_the_frontends_names() -> None:
    cudnn = pytest.importorskip("cudnn", reason="nvidia-cudnn-frontend and nvidia-cudnn-cu13 are not installed")
    for group in ("data_type", "heur_mode", "numerical_note"):
        assert all(hasattr(getattr(cudnn, group), name) for name in vars(getattr(SimulatedCudnn, group)))
    methods = ("tensor", "conv_fprop", "conv_dgrad", "conv_wgrad", "bias", "deselect_numeric_notes", "check_support")
    assert all(hasattr(cudnn.pygraph, name) for name in (*methods, "get_workspace_size", "execute", "build_plans"))
