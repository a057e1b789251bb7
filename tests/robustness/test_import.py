"""What importing the package does not do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def test_import_loads_neither_numpy_nor_a_backend() -> None:
    """Only what is used is loaded; the time itself is for the benchmarks."""
    code = """
import sys
import tesserack as ts
names = ("numpy", "scipy", "torch", "importlib.metadata", "pytest", "rich", "tesserack.nn", "tesserack_cpu")
heavy = [m for m in names if m in sys.modules]
assert not heavy, heavy
assert not any(ts._native._is_loaded(name) for name in ts.backends.list()), "a backend is loaded"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_computing_needs_no_numpy(run_python: Any) -> None:
    """Making, computing, differentiating and printing."""
    run_python(
        """
        import sys
        x = ts.tensor([[1.0, 2.0], [3.0, 4.0]], device=DEVICE, requires_grad=True)
        (x @ x).exp().sum().backward()
        repr(x), x.tolist(), x[0, 1].item(), str(x.grad)
        assert "numpy" not in sys.modules
        """
    )


def test_exit_while_graphs_are_alive(run_python: Any) -> None:
    """The interpreter ends quietly with tensors, hooks and graphs left over, in globals and in cycles."""
    done = run_python(
        """
        x = ts.ones(3, device=DEVICE, requires_grad=True)
        y = (x * 2).exp()
        y.register_hook(lambda grad: (x, y) and None)
        y.itself = y
        y.sum().backward(retain_graph=True)
        """
    )
    assert done.stderr == ""


def test_exit_from_a_thread_that_computes(run_python: Any) -> None:
    """Daemon threads in kernels do not keep the process from ending, nor crash it."""
    run_python(
        """
        import threading, time
        a = ts.ones(300, 300, device=DEVICE)
        def work():
            while True:
                a @ a
        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.3)
        """
    )
