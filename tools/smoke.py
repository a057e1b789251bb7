"""A minute in the life of an installed Tesserack: import, compute, differentiate, train, save, load."""

from __future__ import annotations

import platform
import sys
import tempfile
from pathlib import Path

import tesserack as ts
from tesserack.nn import Linear, ReLU, Sequential


def train() -> float:
    """Fit y = 3x + 1 and return the last loss."""
    ts.manual_seed(0)
    x = ts.rand(64, 1)
    y = x * 3.0 + 1.0
    model = Sequential(Linear(1, 16), ReLU(), Linear(16, 1))
    optimizer = ts.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(300):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
    return float(loss.item())


class Refused(ts.autograd.Function):
    """Raises in the middle of a backward pass."""

    @staticmethod
    def forward(ctx: object, x: ts.Tensor) -> ts.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, *gradients: ts.Tensor) -> ts.Tensor:
        raise KeyError("refused")


def fail() -> None:
    """Errors of every way through the libraries arrive as Python's."""
    x = ts.ones(2, requires_grad=True)
    for call, error in (
        (lambda: ts.ones(2) @ ts.ones(3), RuntimeError),
        (lambda: ts.ones(2, device="nothing"), RuntimeError),
        (lambda: Refused.apply(x).sum().backward(), KeyError),
        (lambda: ts.linalg.cholesky(ts.tensor([[1.0, 2.0], [2.0, 1.0]])), RuntimeError),
    ):
        try:
            call()
        except error:
            continue
        raise AssertionError(f"{error.__name__} expected")
    for name in ("cpu", "cuda", "opencl", "nothing"):
        ts.backends.why_unavailable(name)


def main() -> None:
    assert "numpy" not in sys.modules, "import tesserack imports numpy"
    a = ts.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    (a @ a).sum().backward()
    assert a.grad is not None and a.grad.tolist() == [[7.0, 11.0], [9.0, 13.0]], a.grad

    fail()
    loss = train()
    assert loss < 1e-2, loss

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.safetensors")
        ts.save({"a": a.detach()}, str(path))
        assert ts.load(str(path))["a"].tolist() == a.tolist()
    print(f"smoke test passed: tesserack {ts.__version__}, Python {platform.python_version()}, loss {loss:.1e}")


if __name__ == "__main__":
    main()
