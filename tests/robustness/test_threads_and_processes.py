"""Threads at once, forked children, interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts


def train(device: ts.device, seed: int, steps: int = 30) -> list[float]:
    """A few steps of a small network, from a generator of its own."""
    generator = ts.Generator(device).manual_seed(seed)
    weights = [
        ts.randn(a, b, generator=generator, device=device, dtype=ts.float64).requires_grad_()
        for a, b in ((8, 16), (16, 4))
    ]
    x = ts.randn(32, 8, generator=generator, device=device, dtype=ts.float64)
    losses = []
    for _ in range(steps):
        loss = ((x @ weights[0]).tanh() @ weights[1]).pow(2).mean()
        for w, g in zip(weights, ts.autograd.grad(loss, weights), strict=True):
            with ts.no_grad():
                w -= 0.05 * g
        losses.append(loss.item())
    return losses


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Runs work(0), work(1), ... at once; raises what any of them raised."""
    results: list[Any] = [None] * count
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def body(index: int) -> None:
        start.wait()
        try:
            results[index] = work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "hangs"
    if failures:
        raise failures[0]
    return results


def test_training_in_eight_threads(device: ts.device) -> None:
    """Eight networks at once learn exactly what they learn one after another."""
    alone = [train(device, seed) for seed in range(8)]
    assert in_threads(8, lambda seed: train(device, seed)) == alone
    assert all(losses[-1] < losses[0] for losses in alone)


def test_one_graph_backward_in_eight_threads(device: ts.device) -> None:
    """Backward passes that meet in one leaf add up."""
    x = ts.ones(64, dtype=ts.float64, device=device, requires_grad=True)

    def work(index: int) -> None:
        for _ in range(50):
            (x * (index + 1)).sum().backward()

    in_threads(8, work)
    assert x.grad is not None
    assert x.grad.tolist() == [50.0 * 36] * 64


def test_modes_belong_to_threads(device: ts.device) -> None:
    """no_grad in one thread leaves the others recording."""

    def work(index: int) -> list[bool]:
        seen = []
        for _ in range(200):
            with ts.set_grad_enabled(index % 2 == 0):
                seen.append((ts.ones(1, device=device, requires_grad=True) * 2).requires_grad)
        return seen

    assert in_threads(8, work) == [[i % 2 == 0] * 200 for i in range(8)]


def test_large_kernels_in_threads(device: ts.device) -> None:
    """Kernels that release the interpreter run beside each other."""
    a = ts.arange(300 * 300, dtype=ts.float64, device=device).reshape(300, 300) / 1e4
    expected = (a @ a).sum().item()
    assert in_threads(8, lambda _: [(a @ a).sum().item() for _ in range(5)]) == [[expected] * 5] * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_child_computes(run_python: Any) -> None:
    """A child forked after the parent used all threads computes, forward and backward, without hanging."""
    run_python(
        """
        import os, threading, warnings
        warnings.simplefilter("ignore")
        big = ts.ones(400, 400, device=DEVICE)
        (big @ big).exp().sum().item()
        child = os.fork()
        if child == 0:
            threading.Timer(60, lambda: os._exit(9)).start()
            x = ts.ones(400, 400, device=DEVICE, requires_grad=True)
            filtered = ts.nn.functional.conv2d(x.reshape(1, 1, 400, 400), ts.ones(4, 1, 3, 3, device=DEVICE))
            ((x @ x).sum() + filtered.sum()).backward()
            os._exit(0 if x.grad is not None else 1)
        status = os.waitpid(child, 0)[1]
        assert status == 0, status
        assert (big @ big)[0, 0].item() == 400
        """
    )


@pytest.mark.parametrize("kernel", ["a @ a", "big.sort()", "big.exp().sum()", "step(x)"])
def test_interrupt(kernel: str, device: ts.device) -> None:
    """SIGINT while kernels run ends in KeyboardInterrupt, and the process can go on computing."""
    code = f"""
import signal, sys, tesserack as ts
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
a = ts.ones(1200, 1200, device={str(device)!r})
big = ts.arange(3_000_000.0, device={str(device)!r}).sin()
x = ts.ones(300, 300, device={str(device)!r}, requires_grad=True)
def step(x):
    for _ in range(20):
        (x @ x).tanh().sum().backward()
print("ready", flush=True)
try:
    while True:
        {kernel}
except KeyboardInterrupt:
    assert ts.ones(2, device={str(device)!r}).sum().item() == 2
    print("interrupted", flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.4)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (process.returncode, out) == (0, "interrupted\n"), err


@pytest.mark.parametrize("runs", [0, 2], ids=["by operators", "by its plan"])
def test_interrupt_within_a_graph(runs: int, device: ts.device) -> None:
    """A graph stops between two of its kernels: what it would write at its end is not written."""
    code = f"""
import os, signal, threading, time, warnings, tesserack as ts
warnings.simplefilter("ignore")
signal.signal(signal.SIGINT, signal.default_int_handler)
def chain(x, done):
    for _ in range(200):
        x = x @ x
    done.add_(1)
    return x
traced = ts.jit.trace(chain, (ts.zeros(2, 2), ts.zeros(1)), check_trace=False)
x, done = ts.zeros(600, 600, device={str(device)!r}), ts.zeros(1, device={str(device)!r})
for _ in range({runs}):
    traced(x, done)
try:
    threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    traced(x, done)
    time.sleep(10)
except KeyboardInterrupt:
    print("interrupted", done.item(), traced(ts.eye(2), ts.zeros(1)).sum().item())
"""
    if device.type != "cpu":
        pytest.skip("other devices compute while the graph goes on")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, f"interrupted {runs}.0 2.0\n"), done.stderr


@pytest.mark.parametrize(
    "kernel",
    [
        "ts.ones(1, 1).expand(4000, 500_000) @ ts.ones(1, 1).expand(500_000, 4000)",
        "ts.ones(1, 1, 1).expand(2000, 300, 90_000) @ ts.ones(1, 1, 1).expand(2000, 90_000, 300)",
        "ts.ones(1, 1, 1).expand(4, 4000, 300_000) @ ts.ones(1, 1, 1).expand(4, 300_000, 4000)",
        "ts.nn.functional.conv2d(ts.ones(600, 128, 32, 32), ts.ones(128, 128, 31, 31), padding=15)",
        "ts.ops.convolution_backward_weight(ts.ones(600, 128, 32, 32), ts.ones(600, 128, 32, 32), [128, 128, 31, 31],"
        " [1, 1], [15, 15], [1, 1], 1)",
    ],
)
def test_interrupt_within_a_kernel(kernel: str, device: ts.device) -> None:
    """Products that take minutes look for the interrupt in between."""
    if device.type != "cpu":
        pytest.skip("other backends poll as they like")
    code = f"""
import signal, threading, os, tesserack as ts
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    {kernel}
except KeyboardInterrupt:
    print("interrupted", ts.ones(2).sum().item())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "interrupted 2.0\n"), done.stderr


def test_signals_while_kernels_run(device: ts.device) -> None:
    """A signal's frame lies on the stack of the thread it meets, whatever kernel runs there."""
    code = f"""
        import signal, time, tesserack as ts
        seen = []
        signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        make = lambda *shape: ts.ones(*shape, device={str(device)!r})
        half = lambda t: t.to(ts.bfloat16)
        x, image, filters = make(300, 300), make(4, 16, 28, 28), make(32, 16, 3, 3)
        wide, tall, conv = make(16, 2000), make(2000, 300), ts.nn.functional.conv2d
        leaf, large = image.clone().requires_grad_(), make(16, 16, 21, 21).requires_grad_()
        odd = make(9, 7, 11, 11).requires_grad_()
        steps = [
            lambda: x @ x, lambda: x @ x.t(), lambda: x.t() @ x, lambda: wide @ tall, lambda: x[:8] @ x,
            lambda: x.double() @ x.double(), lambda: half(x) @ half(x), lambda: ts.addmm(x[0], x, x),
            lambda: conv(image, filters), lambda: conv(image, filters, stride=2, dilation=2),
            lambda: conv(image, filters[:, :4], groups=4), lambda: conv(leaf, filters).sum().backward(),
            lambda: conv(leaf, large, padding=10).sum().backward(), lambda: conv(odd, odd[:5]).sum().backward(),
            lambda: conv(half(leaf), half(large), padding=10).sum().backward(),
            lambda: conv(leaf, large[..., :3, :3], dilation=5).sum().backward(),
        ]
        for step in steps:
            end = time.monotonic() + 0.15
            while time.monotonic() < end:
                step()
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert len(seen) > 100, len(seen)
        assert (x @ x)[7, 7].item() == 300
        """
    # Without faulthandler, which would give signals a stack of their own.
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
