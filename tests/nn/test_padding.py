"""Padding by what lies inside, and what comes back through it, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
import tesserack.nn.functional as F

NUMPY = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
CASES = [
    ((2, 3, 7), (3, 2)),
    ((2, 3, 7), (0, 6)),
    ((3, 5, 6), (1, 2, 3, 0)),
    ((2, 2, 5, 6), (0, 0, 4, 1)),
    ((2, 3, 4, 1), (0, 0, 1, 1)),
    ((1, 2, 3, 4, 5), (2, 1, 0, 3, 1, 2)),
    ((2, 64, 40, 40), (1, 1, 2, 2)),  # as large as images
]


def by_numpy(x: Any, pad: tuple[int, ...], mode: str) -> Any:
    pairs = [(pad[k], pad[k + 1]) for k in range(0, len(pad), 2)][::-1]
    return np.pad(x, [(0, 0)] * (x.ndim - len(pairs)) + pairs, NUMPY[mode])


@pytest.mark.parametrize("mode", NUMPY)
@pytest.mark.parametrize(("sizes", "pad"), CASES, ids=str)
def test_values_and_gradients(mode: str, sizes: tuple[int, ...], pad: tuple[int, ...], device: ts.device) -> None:
    rng = np.random.default_rng(len(sizes) + sum(pad))
    x = rng.standard_normal(sizes).astype(np.float32)
    t = ts.tensor(x, device=device, requires_grad=True)
    y = F.pad(t, pad, mode)
    np.testing.assert_array_equal(y.detach().cpu().numpy(), by_numpy(x, pad, mode))
    # Each element's gradient: the sum of the weights at the places that repeat it.
    weights = rng.standard_normal(y.shape).astype(np.float32)
    y.backward(ts.tensor(weights, device=device))
    places = by_numpy(np.arange(x.size).reshape(sizes), pad, mode)
    sums = np.bincount(places.ravel(), weights.ravel().astype(np.float64), x.size).reshape(sizes)
    np.testing.assert_allclose(t.grad.cpu().numpy(), sums, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", NUMPY)
def test_derivatives_of_every_kind(mode: str) -> None:
    x = ts.randn(1, 2, 3, 4, dtype=ts.float64, requires_grad=True)
    assert ts.autograd.gradcheck(lambda t: F.pad(t, (2, 1, 0, 2), mode), x, check_forward_ad=True)
    assert ts.autograd.gradgradcheck(lambda t: F.pad(t, (2, 1, 0, 2), mode) ** 2, x)


@pytest.mark.parametrize("mode", NUMPY)
@pytest.mark.parametrize("dtype", [ts.bool, ts.uint8, ts.int64, ts.float16, ts.bfloat16, ts.complex64], ids=str)
def test_every_dtype(mode: str, dtype: ts.dtype, device: ts.device) -> None:
    x = (ts.arange(12, device=device).reshape(1, 3, 4) % 5).to(dtype)
    wanted = by_numpy(x.cpu().to(ts.complex128).numpy(), (2, 3), mode)
    np.testing.assert_array_equal(F.pad(x, (2, 3), mode).cpu().to(ts.complex128).numpy(), wanted)


@pytest.mark.parametrize("dtype", [ts.float16, ts.bfloat16], ids=str)
def test_sums_in_halves_do_not_saturate(dtype: ts.dtype, device: ts.device) -> None:
    x = ts.zeros(1, 1, 2, dtype=dtype, device=device, requires_grad=True)
    F.pad(x, (3000, 0), "replicate").sum().backward()
    assert x.grad.tolist() == [[[float(ts.tensor(3001.0).to(dtype)), 1.0]]]


def test_layout_stays(device: ts.device) -> None:
    x = ts.randn(2, 3, 4, 5, device=device).to(memory_format=ts.channels_last).requires_grad_()
    y = F.pad(x, (1, 1, 1, 1), "reflect")
    assert y.is_contiguous(memory_format=ts.channels_last) and not y.is_contiguous()
    assert ts.equal(y, F.pad(x.contiguous(), (1, 1, 1, 1), "reflect"))


@pytest.mark.parametrize("dims", [2, 3])
def test_layout_stays_in_constant_padding(dims: int, device: ts.device) -> None:
    """Also where every other channel was taken."""
    layout = ts.channels_last if dims == 2 else ts.channels_last_3d
    x = ts.randn(2, 4, *(3, 4, 5)[:dims], device=device).to(memory_format=layout)
    for part in (x, x[:, ::2]):
        y = F.pad(part, (1, 2))
        assert y.is_contiguous(memory_format=layout) and not y.is_contiguous()
        assert ts.equal(y, F.pad(part.contiguous(), (1, 2)))


def test_numbers_that_cut(device: ts.device) -> None:
    x = ts.arange(5.0, device=device).reshape(1, 1, 5)
    assert F.pad(x, (4, -3), "reflect").tolist() == [[[4, 3, 2, 1, 0, 1]]]
    assert F.pad(x, (-1, 2), "circular").tolist() == [[[1, 2, 3, 4, 1, 2]]]
    assert F.pad(x, (-2, 1), "replicate").tolist() == [[[2, 3, 4, 4]]]


@pytest.mark.parametrize("mode", NUMPY)
def test_nothing_to_pad_is_a_copy(mode: str, device: ts.device) -> None:
    x = ts.arange(5.0, device=device).reshape(1, 1, 5)
    y = F.pad(x, (0, 0), mode)
    assert y.tolist() == x.tolist() and y.data_ptr() != x.data_ptr()


def test_nodes_are_named_as_pytorch_names_them() -> None:
    x = ts.ones(1, 1, 3, 3, requires_grad=True)
    assert type(F.pad(x, (1, 1, 1, 1), "reflect").grad_fn).__name__ == "ReflectionPad2DBackward0"
    assert type(F.pad(x[0], (1, 1), "replicate").grad_fn).__name__ == "ReplicationPad1DBackward0"


@pytest.mark.filterwarnings("ignore:.*jit.trace:DeprecationWarning")
@pytest.mark.parametrize("pad", ["[1, 1, 1, 1, 1, 1, 1, 1]", "[1]", "[9, 1]", "[-1, 1]", "[4611686018427387904, 1]"])
def test_a_graph_that_asks_for_what_pad_refuses(pad: str) -> None:
    """Text is written by hand, too: what it calls looks at its numbers itself."""
    native: Any = ts._native
    traced: Any = ts.jit.trace(lambda x: F.pad(x, (1, 1), mode="reflect"), ts.ones(1, 2, 4), check_trace=False)
    text = str(traced.graph)
    assert '_pad_edges(%0, [1, 1], "reflect")' in text
    with pytest.raises(RuntimeError, match="pad: "):
        graph = native._Graph.parse(text.replace("[1, 1]", pad))
        native._GraphRunner(graph.leaf_level()).run([ts.ones(1, 2, 4)], [])
