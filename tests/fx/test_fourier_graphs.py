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


@pytest.mark.filterwarnings("ignore:.*jit.* is deprecated", "ignore:.*a decision on sizes")
def test_traced_functions_are_saved_and_refuse_other_lengths(tmp_path):
    x = ts.randn(3, 6)
    traced = ts.jit.trace(lambda x: ts.fft.irfft(ts.fft.rfft(x) * 2), (x,))
    ts.jit.save(traced, tmp_path / "traced.pt")
    for program in (traced, ts.jit.load(tmp_path / "traced.pt")):
        ts.testing.assert_close(program(x * 3), x * 6)
        ts.testing.assert_close(program(ts.ones(5, 6)), ts.full((5, 6), 2.0))
        with pytest.raises(RuntimeError, match="written down"):
            program(ts.randn(3, 8))
