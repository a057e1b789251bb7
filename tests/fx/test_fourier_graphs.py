"""Fourier transforms, which libraries compute, in graphs, on fake tensors and before modes: one operator."""

from __future__ import annotations

import subprocess
import sys

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.aten.fake import FakeTensorMode
from tesserack.aten.modes import TorchDispatchMode
from tesserack.fx.experimental.proxy_tensor import make_fx

CALLS = {
    "fft": lambda x: ts.fft.fft(x),
    "ifft2": lambda x: ts.fft.ifft2(x, s=(3, 8), norm="ortho"),
    "rfft2 and back": lambda x: ts.fft.irfft2(ts.fft.rfft2(x) * 2),
    "hfft": lambda x: ts.fft.hfft(x, n=7),
    "stft": lambda x: ts.stft(x.flatten(), 8, window=ts.hann_window(8), return_complex=True).abs(),
    "gradient": lambda x: (
        ts.autograd.grad(ts.fft.fft(x.detach().requires_grad_()).abs().square().sum(), [x])[0]
        if x.requires_grad
        else ts.func.grad(lambda y: ts.fft.fft(y).abs().square().sum())(x)
    ),
}


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize("name", CALLS)
def test_graphs_compute_with_what_they_are_given(name, mode):
    function, x = CALLS[name], ts.randn(5, 8)
    graph = make_fx(function, tracing_mode=mode)(x)
    assert any("tesserack_fft.transform" in str(node.target) for node in graph.graph.nodes)
    for scale in (1, 3):
        ts.testing.assert_close(graph(x * scale), function(x * scale))


@pytest.mark.parametrize("name", [name for name in CALLS if name != "gradient"])
def test_fake_tensors_have_the_shapes(name):
    x = ts.randn(5, 8)
    expected = CALLS[name](x)
    fake = FakeTensorMode()
    with fake:
        found = CALLS[name](fake.from_tensor(x))
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)


def test_a_mode_sees_the_operator_once():
    seen = []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = ts.randn(4, 4)
    with Names(), Names():
        found = ts.fft.rfft(x)
    assert seen.count("tesserack_fft.transform.default") == 2
    ts.testing.assert_close(found, ts.fft.rfft(x))


class _Filtered(nn.Module):
    def forward(self, x):
        return ts.fft.irfft(ts.fft.rfft(x) * 2, n=x.shape[-1])


def test_an_exported_program_runs_in_a_fresh_process(tmp_path):
    program = ts.export.export(_Filtered(), (ts.randn(3, 6),))
    ts.testing.assert_close(program.module()(ts.ones(3, 6)), ts.full((3, 6), 2.0))
    ts.export.save(program, tmp_path / "filtered.pt2")
    text = (
        "import sys, tesserack as ts; run = ts.export.load(sys.argv[1]).module(); "
        "print(run(ts.ones(3, 6)).sub(2).abs().max() < 1e-5)"
    )
    done = subprocess.run([sys.executable, "-c", text, tmp_path / "filtered.pt2"], capture_output=True, text=True)
    assert done.stdout.strip() == "tensor(True)", done.stderr


LENGTHS = {
    "fft": lambda x: ts.fft.fft(x),
    "of two, by the root": lambda x: ts.fft.fft2(x, norm="ortho"),
    "by the count": lambda x: ts.fft.fft(x, norm="forward"),
    "real and back": lambda x: ts.fft.irfft(ts.fft.rfft(x) * 2),
    "of the length that was": lambda x: ts.fft.irfft(ts.fft.rfft(x, norm="ortho"), n=x.shape[-1], norm="ortho"),
    "padded": lambda x: ts.fft.fft(x, n=x.shape[-1] * 2),
}
ROOTS = 2921  # whose square root is no power


@pytest.mark.filterwarnings("ignore:.*jit.* is deprecated")
@pytest.mark.parametrize("how", ["traced", "loaded", "exported", "symbolic"])
@pytest.mark.parametrize("name", LENGTHS)
def test_graphs_transform_other_lengths(name, how, tmp_path):
    function, x = LENGTHS[name], ts.randn(4, 8)

    class Layer(nn.Module):
        def forward(self, x):
            return function(x)

    if how == "symbolic":
        run = make_fx(function, tracing_mode="symbolic")(x)
    elif how == "exported":
        sizes = {0: ts.export.Dim("a", min=2), 1: ts.export.Dim("b", min=2)}
        run = ts.export.export(Layer(), (x,), dynamic_shapes={"x": sizes}).module()
    else:
        run = ts.jit.trace(function, (x,))
    if how == "loaded":
        ts.jit.save(run, tmp_path / "traced.pt")
        run = ts.jit.load(tmp_path / "traced.pt")
    for shape in ((4, 8), (3, 7), (2, ROOTS)):
        x = ts.randn(*shape)
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        found, expected = run(leaves[0]), function(leaves[1])
        assert ts.equal(found, expected)
        found.abs().sum().backward(), expected.abs().sum().backward()
        assert ts.equal(*(leaf.grad for leaf in leaves))
